"""What `scrub` does to files: every format is rewritten so that it stays readable, or the file is left out."""
