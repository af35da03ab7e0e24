"""The schema of the database, and the migrations from older versions."""
