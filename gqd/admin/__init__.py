"""What root does to set a controller up: `gqd init`, the system user, the state directory."""
