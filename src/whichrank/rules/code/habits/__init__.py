"""What does not hang by itself, but asks for trouble."""
