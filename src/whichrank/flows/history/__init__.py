"""`history`: verdicts of past jobs, kept and compared."""
