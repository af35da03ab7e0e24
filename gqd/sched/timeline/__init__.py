"""When resources become free: expected ends of jobs, and the earliest time at which a request fits."""
