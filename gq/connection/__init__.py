"""Connections to a cluster: its location, keys and tokens, the link, and bounds on a peer's resources."""
