"""Queries of the database: history, past jobs, events, audit trail, accuracy of estimates."""
