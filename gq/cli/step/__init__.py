"""The client of a step: its links, streams, terminal and signals."""
