"""Accounts, members, QOS, limits and shares: what administrators set and users ask."""
