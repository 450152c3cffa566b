"""A rank does not arrive at a collective, or arrives alone."""
