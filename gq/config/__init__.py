"""Configuration: gq.toml and its tables, private clusters, and the rules for webhooks and submit hooks."""
