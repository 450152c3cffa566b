"""whichrank inside other tools."""
