"""Reservations as the planner sees them: their windows, their scope, and where a new one fits."""
