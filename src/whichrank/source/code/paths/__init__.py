"""What the ranks communicate on each path, compared: where they part, and who waits for whom."""
