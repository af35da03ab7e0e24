"""Reservations: created, edited, planned as occurrences, checked against what is there."""
