"""Requests of users: options, directives in scripts, resources, patterns, and the job request that results."""
