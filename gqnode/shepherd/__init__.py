"""The process that starts, watches and outlives one attempt on a node; it loads the standard library alone."""
