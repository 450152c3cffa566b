"""Variables of functions: what `local`, `declare` and `typeset` make inside of one is gone when it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.source.shell.builtins import BUILTINS
from whichrank.source.shell.state import Cut, Environment, Variable
from whichrank.source.shell.syntax import Step, commands

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter

_MAKES = frozenset({"local", "declare", "typeset"})
_WHY = "inside of a function this makes a variable of the function, which is gone when it returns"
_FIX = "Write: export NAME=…, or declare -gx NAME=…"


class Frame:
    """One call of a function that is followed."""

    def __init__(self, body: list[Step], level: int, harmless: frozenset[str]) -> None:
        self.level = level  # of the shell that runs it; another one that it starts has variables of its own
        self.before: dict[str, Variable | None] = {}  # what its own variables hide
        self.exported: set[str] = set()
        words = [word.raw for command in commands(body) for word in command.words[:1]]
        self.sets_only = all(word in harmless or "=" in word for word in words)


def called(shell: Interpreter, body: list[Step], env: Environment, harmless: frozenset[str], *, sure: bool) -> None:
    """Follow the body of a function; what it made for itself alone is gone afterwards."""
    frame = Frame(body, env.level, harmless | BUILTINS.keys() | _MAKES | {"export", "readonly"})
    shell.frames.append(frame)
    shell.walk(body, env, sure=sure)
    shell.frames.pop()
    for name, hidden in frame.before.items():
        own = env.variables.pop(name, None)
        if hidden is not None:
            env.variables[name] = hidden
        # A program that it starts with them may be the training, under a name that is not known.
        if own is not None and own is not hidden and name in frame.exported and frame.sets_only:
            for made in own.made:
                made.cut = made.cut or Cut(_WHY, _FIX, 0)


def made(shell: Interpreter, program: str, flags: str, name: str, env: Environment) -> None:
    """`declare -x NAME=…` as a function runs it; with -g it is a variable of the shell."""
    if shell.frames and shell.frames[-1].level == env.level and program in _MAKES and "g" not in flags:
        frame = shell.frames[-1]
        frame.before.setdefault(name, env.variables.get(name))
        if "x" in flags and "+x" not in flags:
            frame.exported.add(name)


def exported(shell: Interpreter, name: str) -> None:
    """`export NAME` of a variable that the function has for itself."""
    if shell.frames and name in shell.frames[-1].before:
        shell.frames[-1].exported.add(name)
