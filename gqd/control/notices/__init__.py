"""Notices to users and programs: whom to tell of what, in which words, and whether it was delivered."""
