"""Options of Open MPI on its command line: parameters that exclude each other, lists where one name is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import counts
from whichrank.records.settings import Clash, Lost

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.words import Field

_OPTIONS = frozenset({"--mca", "-mca", "--gmca", "-gmca"})


def listed(shell: Interpreter, options: Sequence[Field]) -> Iterator[Lost]:
    """`-x NAME,OTHER`: Open MPI takes one variable for each -x, and looks for one that is called so."""
    for option, word in pairwise(options):
        names = word.text.split(",") if option.text == "-x" and "=" not in word.text else []
        for name in names if len(names) > 1 and all(map(counts, names)) else ():
            why = f"-x takes one variable, and there is none that is called {word.text[:80]}"
            yield Lost(name, shell.ref(word.line), why, f"Write: -x {' -x '.join(names[:4])}")


def check(shell: Interpreter, options: Sequence[Field]) -> Iterator[Clash]:
    """`--mca btl_tcp_if_include eth0 --mca btl_tcp_if_exclude lo`: Open MPI takes one of the two."""
    given = {options[at + 1].text: options[at + 1] for at, word in enumerate(options[:-1]) if word.text in _OPTIONS}
    for name, field in given.items():
        other = given.get(name.removesuffix("_if_include") + "_if_exclude")
        if name.endswith("_if_include") and other is not None:
            why = f"it and {name} exclude each other: Open MPI stops with an error"
            also = (shell.ref(field.line),)
            yield Clash(other.text, shell.ref(other.line), why, "Keep one of the two.", also)
