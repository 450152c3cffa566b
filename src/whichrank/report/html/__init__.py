"""Building blocks of self-contained pages: the frame, its look, and the map of ranks over time."""
