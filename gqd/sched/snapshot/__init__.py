"""The cluster as one plan sees it: immutable columns of nodes and jobs, and an overlay to try placements on."""
