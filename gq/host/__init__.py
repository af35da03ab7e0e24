"""What gq needs of the machine: child interpreters, services, files, logs, clocks, limits of processes."""
