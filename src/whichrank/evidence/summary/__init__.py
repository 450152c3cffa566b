"""Summaries: what the readers made of a node's evidence, small enough to send; `diagnose` takes them instead of it."""
