"""Orders findings into cause and consequence, and picks the one to tell."""
