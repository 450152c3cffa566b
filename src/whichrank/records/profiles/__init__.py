"""What profiles of ranks say: their events, and the parts of their steps."""
