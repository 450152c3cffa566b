"""Numbers that go wrong in silence."""
