"""One scheduling pass over the queue, and what the passes of a plan have decided so far."""
