"""A rank does not come to a collective, or comes alone."""
