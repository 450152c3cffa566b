"""Statements while they are read: branches, loops, `try` and `with`, and where paths meet again."""
