"""The same work on many cores or hosts."""
