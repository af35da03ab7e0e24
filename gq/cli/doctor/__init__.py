"""The checks of `gq doctor` and `gq status`, for private clusters and for clusters of a system."""
