"""`diagnose`: from evidence to a verdict."""
