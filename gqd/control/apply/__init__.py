"""What each event changes in the cluster: one module per noun, and the table that calls them."""
