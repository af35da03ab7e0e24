"""The way to a cluster: where it is, keys and tokens, the link to it, and bounds on what a peer may take."""
