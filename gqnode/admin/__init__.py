"""What root does to make a host a node, or to take it out: `gqnode join`, `gqnode leave`."""
