"""`env` and `env lint`: the right settings, and what is wrong with those at hand."""
