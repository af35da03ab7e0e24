"""Which running jobs are preempted, suspended, shrunk or time-sliced for a job that waits."""
