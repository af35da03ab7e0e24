"""Setting up a controller as root: `gqd init`, the system user, the state directory."""
