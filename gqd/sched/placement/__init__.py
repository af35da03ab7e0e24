"""Which nodes, GPUs and CPUs a job gets: constraints, roles, devices, billing."""
