"""Configuration: gq.toml and the tables in it, private clusters, what is checked in a webhook or a submit hook."""
