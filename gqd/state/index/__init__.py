"""Indexes of the cluster that its events keep up to date: the queue, usage, dependants, deadlines."""
