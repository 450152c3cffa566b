"""A job that goes on, but slower than it could."""
