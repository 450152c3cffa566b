"""Launch files other than shell scripts: one module for each format."""
