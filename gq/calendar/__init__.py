"""Instants, durations, schedules and calendars as users write them."""
