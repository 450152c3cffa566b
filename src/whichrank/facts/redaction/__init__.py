"""Secrets and identities: how they look, how they are recognised, and what takes their place.

Shared by `scrub`, notifications and reports. Patterns are data with their sources: `secret_tokens.csv` (what keys of
known services look like), `letter_pairs.txt` (what identifiers look like, to tell random text from them) and
`common_words.txt` (words that are never renamed, because evidence is made of them).
"""
