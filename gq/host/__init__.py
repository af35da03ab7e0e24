"""Access to the host: child interpreters, services, files, logs, clocks, limits of processes."""
