"""The verbs of `gq` that are no commands of their own: one module each."""
