"""The schema, and the changes that bring an older database to it."""
