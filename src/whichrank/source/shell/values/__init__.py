"""What expressions of a shell come to: sums, and the output of functions."""
