"""`compare`: what differs between two runs."""
