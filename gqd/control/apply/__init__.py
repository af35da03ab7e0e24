"""Apply functions: the change that each event makes to the cluster, one module per noun, and their table."""
