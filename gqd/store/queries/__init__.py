"""Questions to the database beside the live cluster: history, past jobs, events, audit, accuracy of estimates."""
