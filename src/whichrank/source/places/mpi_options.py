"""Parameters of Open MPI on its command line that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from whichrank.records.settings import Clash

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.words import Field

_OPTIONS = frozenset({"--mca", "-mca", "--gmca", "-gmca"})


def check(shell: Interpreter, options: Sequence[Field]) -> Iterator[Clash]:
    """`--mca btl_tcp_if_include eth0 --mca btl_tcp_if_exclude lo`: Open MPI takes one of the two."""
    given = {options[at + 1].text: options[at + 1] for at, word in enumerate(options[:-1]) if word.text in _OPTIONS}
    for name, field in given.items():
        other = given.get(name.removesuffix("_if_include") + "_if_exclude")
        if name.endswith("_if_include") and other is not None:
            why = f"it and {name} exclude each other: Open MPI stops with an error"
            also = (shell.ref(field.line),)
            yield Clash(other.text, shell.ref(other.line), why, "Keep one of the two.", also)
