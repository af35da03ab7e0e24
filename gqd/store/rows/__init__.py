"""Records and events as rows of the database, and back."""
