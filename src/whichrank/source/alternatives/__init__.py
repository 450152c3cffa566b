"""Alternatives of a program, and what it does where nobody asks for another one."""
