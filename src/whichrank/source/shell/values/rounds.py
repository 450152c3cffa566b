"""Loops over hosts, and what each round makes anew: `ssh $h "torchrun --rdzv-id=$(date +%s) …"`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field

from whichrank.records.launches import Launch
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.places.own_values import is_random

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.tokens import Redirect
    from whichrank.source.shell.words import Field

_NAMES = re.compile(r"\$[{(]?[!#]?(\w+)|\[\$?\{?(\w+)")
_MEETING = re.compile(
    r"(?<![\w-])(--(?:master[-_](?:port|addr)|main[-_]process[-_](?:port|ip)|rdzv[-_](?:id|endpoint))"
    r"|MASTER_(?:PORT|ADDR))[= ]"
    r"((?:\$\(\([^()]{0,80}\)\)|\$\([^()]{0,80}\)|`[^`]{0,80}`|[^\s;&|]){1,200})"
)
_LONGEST, _MOST_MADE = 20_000, 4_000
_WHY = "each round of the loop makes another one, so that the hosts look for each other in different places"


class Rounds(Struct):
    """The loops that are followed at present, and in which of them each variable was set."""

    loops: list[int] = field(default_factory=list)
    names: list[frozenset[str]] = field(default_factory=list)
    """The variables that each of them goes through."""
    said: dict[int, dict[tuple[str, int], str]] = field(default_factory=dict)
    """Of each loop what its rounds said so far, by option and line."""
    made_in: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    """Variables that hold something random or a time -> the line."""

    @contextmanager
    def loop(self, which: int, *names: str) -> Iterator[None]:
        self.loops.append(which)
        self.names.append(frozenset(names))
        self.made_in.update(dict.fromkeys(names, which))
        yield
        self.said.pop(self.loops.pop(), None)
        self.names.pop()

    def take(self, name: str, raw: str, line: int, *, sure: bool) -> None:
        """A variable that is set; not sure inside of a condition, which may hold in one round only."""
        self.drawn.pop(name, None)
        self.made_in.pop(name, None)
        if not sure:
            return
        if self.loops and len(self.made_in) < _MOST_MADE:
            self.made_in[name] = self.loops[-1]
        if is_random(raw) and ":-" not in raw:  # one that somebody gives may be the same for all
            self.drawn[name] = line

    def of_this_round(self, raw: str) -> list[str]:
        """Variables in a text that the innermost loop sets."""
        names = (one or other for one, other in _NAMES.findall(raw)) if self.loops else ()
        return [name for name in names if self.made_in.get(name) == self.loops[-1]]

    def goes_through(self, raw: str) -> bool:
        """The text has a variable that the innermost loop goes through."""
        return any((one or other) in self.names[-1] for one, other in _NAMES.findall(raw)) if self.loops else False

    def differs(self, option: str, line: int, text: str) -> bool:
        """An earlier round of the innermost loop said something else here."""
        if UNKNOWN in text or "$" in text or "`" in text:
            return False
        return self.said.setdefault(self.loops[-1], {}).setdefault((option, line), text) != text


def check(
    shell: Interpreter, host: Field, words: Sequence[Field], redirects: Sequence[Redirect], launches: Sequence[Launch]
) -> None:
    """Words: of the command that goes to that host, as they are written. Launches: what it starts there."""
    apart = any(launch.several and not (launch.drawn and launch.everywhere) for launch in launches)
    if not apart or not shell.rounds.of_this_round(host.raw):
        return
    listed = any(launch.rank is not None and launch.rank.text.isdecimal() for launch in launches)
    texts = [(" ".join(word.raw or word.text for word in words), words[0].line if words else host.line)]
    texts += [(each.body, each.body_line) for each in redirects if each.body]
    for text, first in texts:
        for match in _MEETING.finditer(text[:_LONGEST]):
            used = [name for name in shell.rounds.of_this_round(match[2]) if name in shell.rounds.drawn]
            at = shell.rounds.drawn[used[0]] if used else first + text.count("\n", 0, match.start())
            # Hosts with known numbers are compared with one another, each with its own line.
            if used or is_random(match[2]) or (not listed and shell.rounds.goes_through(match[2])):
                _tell(shell, match[1], at, launches[0])
                return
    told = {match[1]: match[2] for match in _MEETING.finditer(" ".join(word.text for word in words)[:_LONGEST])}
    for match in _MEETING.finditer(texts[0][0][:_LONGEST]) if not listed else ():
        made_here = shell.rounds.of_this_round(match[2])
        if made_here and shell.rounds.differs(match[1], host.line, told.get(match[1], UNKNOWN)):
            _tell(shell, match[1], words[0].line, launches[0])
            return


def _tell(shell: Interpreter, option: str, line: int, launch: Launch) -> None:
    fix = "Make it once, before the loop, and give all hosts the same."
    shell.clash(Clash(option, shell.ref(line), _WHY, fix, (launch.ref,)))
