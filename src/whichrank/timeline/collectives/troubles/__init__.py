"""From meetings that did not end well to troubles: what is wrong, and who is behind it."""
