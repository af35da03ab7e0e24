"""Indices of the cluster, kept up to date by its apply functions: queue, tallies, dependants, deadlines."""
