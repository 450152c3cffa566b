"""Random text told from identifiers: a key, a token or a hash has letters in an order that no name has.

`letter_pairs.txt` holds, for each pair of characters, how much more often (in tenths of a bit) it occurs in
identifiers than in random text; signs that are no letter or digit count as one. It was counted over the names in
CPython 3.11, numpy and torch 2.13 and the C++ symbols of torch (`tools/letter_pairs.py`). Of identifiers with 16 or
more characters 1 % have a mean below 0.32 bits, of mangled symbols 0.1 % below 0.72; of random base62 with 20
characters 0.1 % are above -0.56.
"""

from __future__ import annotations

import re
import string
from functools import cache, lru_cache
from itertools import pairwise

from whichrank.facts.tables import HERE

ALPHABET = string.ascii_letters + string.digits
OTHER = len(ALPHABET)
ZERO = 33 + 40
"""The character that stands for no difference."""
SHORTEST = 12
FEWEST_SIGNS = 6
LONGEST_NUMBER = 20
"""Digits of 64 bits; times in nanoseconds have 19."""
"""Rows of dashes and the like have fewer different ones."""

CANDIDATE = re.compile(r"[A-Za-z0-9+/=_\-]{12,}|[A-Za-z0-9+/=_\-]{4,}(?:[.~!@$%^&*][A-Za-z0-9+/=_\-]{2,}){2,}")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")
_AMOUNT = re.compile(r"\d+[A-Za-z]{1,6}")
_SEGMENTS = re.compile(r"[/.=~!@$%^&*]+")


@cache
def _pairs() -> list[list[float]]:
    lines = (HERE / "redaction" / "letter_pairs.txt").read_text(encoding="ascii").splitlines()
    return [[(ord(sign) - ZERO) / 10 for sign in line] for line in lines]


@cache
def _index() -> dict[str, int]:
    return {sign: at for at, sign in enumerate(ALPHABET)}


def likeness(token: str) -> float:
    """Bits per pair by which this is more like an identifier than like random text."""
    pairs, index = _pairs(), _index()
    token = token.lower() if token.isupper() else token  # names of variables
    places = [index.get(sign, OTHER) for sign in token]
    return sum(pairs[a][b] for a, b in pairwise(places)) / max(len(token) - 1, 1)


@lru_cache(maxsize=1 << 16)
def is_random(token: str) -> bool:
    """Whether a token of `CANDIDATE` is random as a whole, or one of its parts between slashes and dots is."""
    if "=" not in token.rstrip("=") and _random_part(token):
        return True
    parts = _SEGMENTS.split(token)
    return len(parts) > 1 and any(_random_part(part) for part in parts)


def _random_part(token: str) -> bool:
    token = token.strip("-_=+/.")
    size = len(token)
    if token.isdigit():
        return size > LONGEST_NUMBER
    if size < SHORTEST or len(set(token)) < FEWEST_SIGNS:
        return False
    digits = sum(sign.isdigit() for sign in token)
    lower, upper = any(map(str.islower, token)), any(map(str.isupper, token))
    if hexadecimal := _HEX.fullmatch(token):
        return _random_hex(token, hexadecimal[1], digits)
    if _AMOUNT.fullmatch(token):
        return False
    kinds = lower + upper + (digits > 0)
    if size < 16:  # too short to be sure: only what mixes everything
        return kinds == 3 and digits >= 2 and likeness(token) < -0.8
    # Names of kernel counters and of C functions are full of odd pairs, but not of digits.
    bound = 0.3 if digits > 1 and size >= 20 else -0.3
    return likeness(token) < (bound if kinds >= 2 else -0.5)


def _random_hex(token: str, inner: str, digits: int) -> bool:
    """Hashes and keys; not addresses and ids of 64 bits with 0x, not numbers."""
    if token[:2] in ("0x", "0X"):
        return len(inner) > 16
    mixed = digits > 0 and digits < len(inner)
    return mixed and len(inner) >= 20
