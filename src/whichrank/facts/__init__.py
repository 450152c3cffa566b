"""What the world knows, as data files with a citation each, and small modules that load them."""
