"""`lint`: training code read without running it."""
