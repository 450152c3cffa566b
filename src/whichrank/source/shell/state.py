"""The variables of a shell while its script is followed: what is set, what is exported, what got lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct, field

from whichrank.records.settings import UNKNOWN, How
from whichrank.source.shell.tokens import Word
from whichrank.source.shell.words import Value

NESTING_LIMIT = 6
"""Scripts inside scripts, and functions that call functions."""
_HANDS_ON = ("-x", "-e", "--env")
"""Options of mpirun, docker and others that name a variable for the program."""
CONTAINER_PREFIXES = ("SINGULARITYENV_", "APPTAINERENV_")


class Made(Struct, eq=False):
    """One assignment of the script, and what became of it."""

    name: str
    value: Value
    line: int
    sure: bool
    how: How
    level: int
    order: int
    reached: bool = False
    """A program that trains was started with it."""
    dropped: bool = False
    """Overwritten or unset before anything was started."""
    used: bool = False
    apart: bool = False
    """Set in a subshell or a pipeline."""
    cut: Cut | None = None
    way: str = ""
    """The branch that it stands in; empty outside of branches, and in those that are taken by default."""
    asked: bool = False
    """Somebody has to ask for that branch."""
    given: bool = False
    """It stands in the file around the script, which tells of it itself."""

    @property
    def text(self) -> str | None:
        return None if UNKNOWN in self.value.text else self.value.text


class Written(NamedTuple):
    """A file that the script writes."""

    text: str
    """With the variables put in that the script itself sets."""
    line: int
    """Of its first line in the script."""


class Early(NamedTuple):
    """What differs from task to task, put in by the script that starts the tasks."""

    name: str
    """The option or variable that gets it."""
    text: str
    line: int


class Cut(NamedTuple):
    """Something between the script and the ranks that does not pass a variable on."""

    why: str
    fix: str
    line: int
    remote: bool = False
    """It starts ranks on other hosts: that ranks on this one have the variable does not help."""


class Variable(NamedTuple):
    """A variable at one moment; a change makes another one, so that copies of an environment are cheap."""

    value: Value
    exported: bool
    made: tuple[Made, ...] = ()


class Environment(Struct, eq=False):
    """One shell process."""

    variables: dict[str, Variable] = field(default_factory=dict)
    export_all: bool = False
    level: int = 0
    """How many processes away from the script itself."""
    slurm: frozenset[str] | None = None
    """What srun passes on by default; None for everything."""
    slurm_line: int = 0
    missing: dict[str, tuple[tuple[Made, ...], Cut]] = field(default_factory=dict)
    """Variables that a process further out exported and that did not get here."""
    ended: bool = False
    left: frozenset[str] = frozenset()
    """Variables that a process further out has for itself alone."""

    def copy(self, *, apart: bool = False) -> Environment:
        """For a branch, or (apart) for a process of its own."""
        level = self.level + 1 if apart else self.level
        return Environment(
            dict(self.variables),
            self.export_all,
            level,
            self.slurm,
            self.slurm_line,
            dict(self.missing),
            left=self.left,
        )

    def through(self, passes: Callable[[str], bool] | None, cut: Cut | None) -> Environment:
        """What a program that is started from here gets; the variables that `cut` keeps back are remembered."""
        inner = Environment(level=self.level + 1, missing=dict(self.missing))
        inner.slurm, inner.slurm_line = self.slurm, self.slurm_line
        inner.left = self.left | {name for name, variable in self.variables.items() if not variable.exported}
        for name, variable in self.variables.items():
            if not variable.exported:
                continue
            if passes is None or passes(name):
                inner.variables[name] = variable
            elif cut is not None:
                inner.missing[name] = (variable.made, cut)
        return inner

    def merge(self, ways: Iterable[Environment]) -> None:
        """Go on with what any of these may have left."""
        left = [way for way in ways if not way.ended]
        if not left:
            self.ended = True
            return
        merged = dict(left[0].variables)
        for name in {name for way in left for name in way.variables}:
            found = [way.variables.get(name) for way in left]
            if any(v is not found[0] for v in found):
                merged[name] = _either([v for v in found if v is not None], everywhere=None not in found)
        self.variables = merged
        self.export_all = any(way.export_all for way in left)
        self.slurm = left[0].slurm if all(way.slurm == left[0].slurm for way in left) else None


def _usual(found: list[Variable]) -> str | None:
    """The text that all ways leave which nobody has to ask for."""
    values = [v.value for v in found if not any(made.asked for made in v.made)]
    texts = {value.usual if UNKNOWN in value.text else value.text for value in values if value.items is None}
    return texts.pop() if len(texts) == 1 else None


def _either(found: list[Variable], *, everywhere: bool) -> Variable:
    same = everywhere and all(v.value == found[0].value for v in found)
    value = found[0].value if same else _named_by_any(found) or Value(UNKNOWN, fixed=False, usual=_usual(found))
    made = {id(m): m for v in found for m in v.made}
    return Variable(value, any(v.exported for v in found), tuple(made.values()))


def _named_by_any(found: list[Variable]) -> Value | None:
    """The elements of an array that differs in the variables it hands on (`-x NAME`) alone, with those of all ways."""
    lists = [v.value.items for v in found if v.value.items is not None and not v.value.keys]
    if len(lists) < len(found):
        return None
    alike = [items[0] for items in takewhile(_same_words, zip(*lists, strict=False))]
    named: dict[str, tuple[Word, Word]] = {}
    for items in lists:
        more = items[len(alike) :]
        if len(more) % 2 or any(option.raw not in _HANDS_ON for option in more[::2]):
            return None
        named |= {name.raw: (option, name) for option, name in zip(more[::2], more[1::2], strict=True)}
    rest = (word for pair in named.values() for word in pair)
    return Value("", fixed=False, items=(*alike, *rest), line=found[0].value.line)


def _same_words(items: tuple[Word, ...]) -> bool:
    return all(item.raw == items[0].raw for item in items)
