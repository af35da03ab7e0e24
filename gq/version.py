"""The one place that knows the version; pyproject.toml reads it from here."""

VERSION = "0.1.0"
