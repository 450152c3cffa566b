"""`bench`: how fast collectives are, and how fast they should be."""
