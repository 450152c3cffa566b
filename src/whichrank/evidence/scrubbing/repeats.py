"""Lines that come again with other numbers: what was done with the first is done with all.

Output of jobs repeats a few hundred shapes a million times. A line is cut at the numbers that stand alone in it (steps,
losses, times, processes, addresses of memory); lines with the same text between numbers of the same lengths have one
shape. No pattern of the redactor depends on the value of such a number, unless a word before it says that it is a
secret or a name: a shape with such a word is looked at again each time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

# It begins with one class of characters, so that a search passes over all others at once; what must stand before a
# number is asked behind its first digit.
_NUMBER = re.compile(
    r"([0-9o](?:(?<=[0-9])(?:"
    r"(?<![\w.:+\-].)[0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?(?![\w.:\-])"
    r"|(?<![^\s=({\[,|<>].)(?:(?<=0)x[0-9a-f]{1,16}|[0-9]:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
    r"|[0-9]{0,11}(?:[./][0-9]{1,12})?(?:[eE][+\-]?[0-9]{1,3})?(?:it/s|s/it|[munµ]?s|[KMGT]i?B?)?)(?=[\s,)}\];%|<]|/\s|$)"
    # host:pid:tid [device], as NCCL begins its lines
    r"|(?<=[A-Za-z0-9]:.)[0-9]{0,9}:[0-9]{1,10}(?= \[-?[0-9]{1,4}\] )"
    r")|(?<=o)pCount [0-9a-f]{1,16}(?= )))"
)
_SECRET = re.compile(
    r"(?i)pass|pwd|secret|token|cred|key|bearer|basic|digest|cookie|sess|csrf|xsrf|conn\w{0,8}str|dsn|webhook|otp|jwt|"
    r"seed.?phrase|mnemonic|\bpw\b|psk|auth|sig\b|signature|\bpin\b|\bsas\b|\bpat\b|kennwort|contrase|mot.?de|login|value|"
    r"serial|(?<!PG )guid|uuid|ssid|[ug]id\b|userid|machine.?id|asset|\btag\b|phone|sshpass"
)
_WORDS = (
    "pass", "pwd", "secret", "token", "cred", "key", "bearer", "basic", "digest", "cookie", "sess", "csrf", "xsrf",
    "str", "dsn", "webhook", "otp", "jwt", "seed", "mnemonic", "pw", "psk", "auth", "sig", "pin", "sas", "pat",
    "kennwort", "contrase", "mot", "login", "value", "serial", "guid", "uuid", "ssid", "uid", "gid", "userid",
    "machine", "asset", "tag", "phone",
)  # fmt: skip
"""One of these is in everything that `_SECRET` finds."""
_ADJACENT = 24
_NAME = re.compile(
    r"(?i)(?:host|node|server|machine|name|addr\w{0,4}|user|account|owner|author|by|as|for|project|group|team|org|tenant|"
    r"entity|reservation|cluster|allocation|instance|computer|peer|pod|ssh|ping|echo|-\w)[\"'\s:=(\[<,]{0,8}$"
)
_NEAR = 80
_OFTEN = 5
"""Redacting a line alone costs as much as redacting some lines among others."""
_LONGEST = 2000
_MOST = 1 << 14
_ENOUGH, _NEARLY_ALL = 4000, 0.8
_HEADING = re.compile(r"(?im)(?:^|\|)[ \t]*(?:user|account|nodelist|hostname|host|owner|username)[ \t]*(?:\||$)")
"""Of a table with bars: its rows are read with it."""

Key = tuple[object, ...]


class _Shape:
    __slots__ = ("counts", "guards", "met", "parts", "settled")

    def __init__(self, texts: list[str]) -> None:
        low = "\n".join(texts).lower()
        tails = [text[-_NEAR:] for text in texts] if any(map(low.__contains__, _WORDS)) else [""]
        said = any(map(_SECRET.search, tails[:-1])) or any(_NAME.search(text[-_ADJACENT:]) for text in texts[:-1])
        self.guards = _SECRET.search(tails[-1]) is not None
        """Its last words may say what the next line gives."""
        self.settled = said or self.guards
        self.parts: list[str] | None = None
        """What is written between the numbers, where that is known."""
        self.counts: Counter[str] = Counter()
        self.met = 1


class Shapes:
    """The shapes that were met, in all files of one pass."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: dict[Key, _Shape] = {}
        self._has_tables = False
        self._looked = self._new = 0
        self._all_differ = False
        """Whether hardly a line repeats another: then looking for shapes costs and gains nothing."""
        # A known secret that is a number is replaced wherever it stands.
        self._secrets = frozenset(secret for secret in secrets if _NUMBER.fullmatch(secret))

    def fresh(self, text: str) -> str:
        """The lines that may hold something new."""
        kept, guarded = [], True
        self._has_tables = self._has_tables or ("|" in text and _HEADING.search(text) is not None)
        for line in text.split("\n"):
            if not (line or guarded):
                continue
            shape, _, is_new = self._look(line)
            if guarded or is_new or shape is None or shape.settled or (self._has_tables and "|" in line):
                kept.append(line)
            guarded = shape is None or shape.guards
        return "\n".join(kept)

    def rewritten(self, text: str, redact: Callable[[str], str], counts: Counter[str]) -> str:
        """The text as `redact` would write it; `counts` is what that one counts in."""
        lines = text.split("\n")
        slow: list[int] = []
        guarded = True
        for at, line in enumerate(lines):
            if not (line or guarded):
                continue
            shape, numbers, is_new = self._look(line)
            done = None
            if shape is not None and not (guarded or is_new):
                shape.met += 1
                if not shape.settled and shape.met >= _OFTEN:
                    _settle(shape, line, numbers, redact, counts)
                if shape.parts is not None:
                    done = "".join(chain.from_iterable(zip(shape.parts, [*numbers, ""], strict=True)))
                    counts.update(shape.counts)
            if done is None:
                slow.append(at)
            else:
                lines[at] = done
            guarded = shape is None or shape.guards
        written = redact("\n".join(lines[at] for at in slow)).split("\n") if slow else []
        if len(written) != len(slow):
            return redact(text)
        for at, line in zip(slow, written, strict=True):
            lines[at] = line
        return "\n".join(lines)

    def _look(self, line: str) -> tuple[_Shape | None, list[str], bool]:
        """Its shape, its numbers, and whether it is the first of its shape; None for what is not worth it."""
        if len(line) > _LONGEST or self._all_differ:
            return None, [], False
        self._looked += 1
        pieces = _NUMBER.split(line)
        texts, numbers = pieces[::2], pieces[1::2]
        if not self._secrets.isdisjoint(numbers):
            return None, [], False
        key = (*texts, *map(len, numbers))
        shape = self._known.get(key)
        if shape is not None:
            return shape, numbers, False
        shape = _Shape(texts)
        if len(self._known) < _MOST:
            self._known[key] = shape
        self._new += 1
        self._all_differ = self._new > _ENOUGH and self._new > _NEARLY_ALL * self._looked
        return shape, numbers, True


def _settle(shape: _Shape, line: str, numbers: list[str], redact: Callable[[str], str], counts: Counter[str]) -> None:
    """Learn from one line what is done with all of its shape, unless a number of it was changed too."""
    before = counts.copy()
    pieces = _NUMBER.split(redact(line))
    shape.settled = True
    if pieces[1::2] == numbers:
        shape.parts = pieces[::2]
        shape.counts = counts - before
    counts.clear()
    counts.update(before)
