"""What a watched job prints: passed on byte for byte, with a copy for the evidence."""
