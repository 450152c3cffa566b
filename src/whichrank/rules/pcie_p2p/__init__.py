"""Rules of this family of the taxonomy."""
