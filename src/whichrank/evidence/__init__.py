"""Evidence: what is read, collected and probed."""
