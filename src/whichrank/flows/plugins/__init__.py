"""Rules and messages of a site: run, checked, listed."""
