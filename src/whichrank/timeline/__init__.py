"""Ranks lined up: who is who, which operations belong together, who waits for whom."""
