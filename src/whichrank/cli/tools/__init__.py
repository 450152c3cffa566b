"""Verbs about whichrank itself: practice, plug-ins, schemas, agents, monitoring."""
