"""Requests that need more than the live cluster: the submit hook, history, event streams, cron."""
