"""Training code and launch files read as evidence: text in, records out; nothing is executed."""
