"""Notices to users and programs: their occasions, recipients, texts and delivery."""
