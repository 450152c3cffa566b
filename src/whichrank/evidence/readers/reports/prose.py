"""Which lines a person wrote, and which a program printed."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_LINE = 2000
_WORDS = 4
"""A sentence has at least so many."""
_PRINTED_WITHIN = re.compile(
    r"NCCL (?:INFO|WARN|VERSION|TRACE|CALL)|(?<![=\w])(?:WARNING|ERROR|INFO|DEBUG)\b(?!=)|\.py:\d|\bwhat\(\)"
)
_MARKS = ("NCCL ", "WARNING", "ERROR", "INFO", "DEBUG", ".py:", "what()")
"""One of these stands where that one matches."""
_PRINTED = re.compile(
    r"\s{0,16}File \"|\s{0,8}\[|[{<]|(?:\w{1,8} )?(?:\d{4}-\d\d-\d\d|[IWEF]\d{4} \d\d:\d\d:)"
    r"|[\w.-]{1,60}\s{1,4}\d{4}-\d\d-\d\d[T ]\d\d:\d\d|[^a-z\n]{0,24}\d\d:\d\d:\d\d"
    r"|\w{3} +\d{1,2} \d\d:\d\d:\d\d|\s{0,8}(?:at|#\d) "
    r"|Traceback|\w{1,60}=\S+$|[\w.]{1,120}(?:Error|Exception):|Exception ignored in"
    r"|[\w./-]{2,40}(?:\[\d{1,10}\])?: (?:error|warning|fatal|notice|info|debug): "
    r"|\((?:raylet|autoscaler\b[^)]{0,40}|\w{1,60}(?:\([^)]{0,40}\))? pid=\d{1,10}[^)]{0,80})\) "
)
"""How lines of programs begin."""
_SMALL = frozenset(
    ("a", "an", "the", "is", "are", "was", "it", "its", "we", "i", "our", "my", "they", "this", "that", "with", "when",
     "without", "but", "and", "on", "in", "of", "to", "from", "after", "if",
     "der", "die", "das", "und", "ist", "nicht", "wir", "bei", "mit", "auf", "le", "la", "les", "est", "et", "nous",
     "avec", "pas", "el", "los", "es", "con", "y", "que", "и", "не", "на", "в", "с", "что", "мы")
)  # fmt: skip
_WITHOUT_SPACES = re.compile(r"(?:[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3][^\n]?){6}")
"""Chinese, Japanese and Korean."""
_PERSON = re.compile(r"(?<!: )\b(?:I|I'm|we|We|my|My|our|Our|us)\b")
_MOST_SHAPES = 1 << 12
_SOME = 30
"""A person who pastes a log writes at least one line in thirty."""


def by_person(text: str) -> bool:
    """Whether a person wrote this: half of it are sentences, or some are and speak of themselves."""
    lines = [line for line in text.split("\n") if line.strip()]
    prose = [line for line in lines if is_prose(line)]
    most = 2 * len(prose) >= len(lines)
    return most or (_SOME * len(prose) >= len(lines) and any(_PERSON.search(line) for line in prose))


def is_prose(line: str) -> bool:
    if len(line) > LONGEST_LINE or _PRINTED.match(line):
        return False
    spaced = line.isascii()
    if spaced and len(line.split(None, _WORDS)) < _WORDS:
        return False
    words = [word.strip(".,;:!?()`\"'") for word in line.lower().split()]
    # Programs print lists of values; sentences have small words between the others.
    spoken = not _SMALL.isdisjoint(words) and sum(map(str.isalpha, words)) >= _WORDS
    return (spoken or (not spaced and _WITHOUT_SPACES.search(line) is not None)) and not is_printed_line(line)


shape_is_prose = lru_cache(_MOST_SHAPES)(is_prose)
"""Which digit is which does not matter, and files repeat the shapes of their lines."""


def is_printed_line(line: str) -> bool:
    if _PRINTED.match(line):
        return True
    return any(map(line.__contains__, _MARKS)) and _PRINTED_WITHIN.search(line) is not None
