"""Small real torch jobs with one known fault each, and a way to run them."""
