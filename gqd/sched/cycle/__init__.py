"""The scheduling pass over the queue, and the draft of a plan to which the passes add their decisions."""
