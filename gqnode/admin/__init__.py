"""Commands with which root makes a host a node, or removes it: `gqnode join`, `gqnode leave`."""
