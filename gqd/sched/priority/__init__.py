"""Which pending job goes first: priority factors, fair share, order of the queue."""
