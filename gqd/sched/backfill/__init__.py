"""Planned starts that later jobs must not delay, and the jobs that get one so that nobody starves."""
