"""Commands of the shell itself that change its variables or end it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell import texts
from whichrank.source.shell.allocation import Count
from whichrank.source.shell.state import Environment, Variable
from whichrank.source.shell.words import Field, Value

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter


def _unset(shell: Interpreter, command: list[Field], env: Environment, sure: bool) -> None:
    for item in command[1:]:
        if item.text == "SLURM_EXPORT_ENV":
            env.slurm = None
        variable = env.variables.get(item.text)
        if variable is not None and sure:
            shell.drop(variable, env)
            del env.variables[item.text]


def _set(_shell: Interpreter, command: list[Field], env: Environment, _sure: bool) -> None:
    for index, item in enumerate(command[1:], 1):
        if item.text == "--":
            return
        on = item.text[:1] == "-"
        if item.text[:1] in {"-", "+"} and ("a" in item.text[1:] and len(item.text) < 8):
            env.export_all = on
        elif item.text == "allexport" and command[index - 1].text[1:].endswith("o"):
            env.export_all = command[index - 1].text.startswith("-")


def _source(shell: Interpreter, command: list[Field], env: Environment, sure: bool) -> None:
    if len(command) > 1 and command[1].text in {"/dev/stdin", "-"} and shell.piped:
        text, shell.piped = shell.piped, ""
        texts.inner(shell, text, command[0].line, env, sure=False)
    elif len(command) > 1:
        texts.include(shell, command[1].text, env, sure=sure)


def _eval(shell: Interpreter, command: list[Field], env: Environment, sure: bool) -> None:
    text = " ".join(f.text for f in command[1:])
    if UNKNOWN not in text:
        texts.inner(shell, text, command[0].line, env, sure=sure)


def _end(_shell: Interpreter, _command: list[Field], env: Environment, _sure: bool) -> None:
    env.ended = True


def _setenv(shell: Interpreter, command: list[Field], env: Environment, sure: bool) -> None:
    if len(command) > 2:
        shell.assign(command[1].text, Value(command[2].text), command[1].line, env, sure=sure, exported=True)


def _read(_shell: Interpreter, command: list[Field], env: Environment, _sure: bool) -> None:
    for item in command[1:]:
        if re.fullmatch(r"[A-Za-z_]\w*", item.text) and item.text not in env.variables:
            env.variables[item.text] = Variable(Value(UNKNOWN, fixed=False), False)


def _getopts(shell: Interpreter, command: list[Field], env: Environment, _sure: bool) -> None:
    if len(command) > 2:
        shell.arguments.add(command[2].text)
        env.variables[command[2].text] = Variable(Value(UNKNOWN, fixed=False), False)


def _ulimit(shell: Interpreter, command: list[Field], _env: Environment, _sure: bool) -> None:
    """`ulimit -l 64`: KiB that may be locked."""
    words = [item.text for item in command[1:]]
    if words and re.fullmatch(r"-[HS]*l", words[0]):
        few = len(words) == 2 and re.fullmatch(r"\d{1,9}", words[1])
        limit = Count(int(words[1]) << 10, command[0].line, "ulimit -l") if few else None
        shell.allocation = shell.allocation._replace(locked=limit)


def _shift(shell: Interpreter, command: list[Field], env: Environment, _sure: bool) -> None:
    """The arguments of a function or script, moved to the front."""
    by = command[1].text if len(command) > 1 else "1"
    given = env.variables.get("@")
    items = given.value.items if given is not None else None
    if given is None or items is None or by not in set("123456789"):
        return
    count = int(by)
    for number in range(1, 10):
        later = env.variables.get(str(number + count))
        env.variables.pop(str(number), None)
        if later is not None:
            env.variables[str(number)] = later
        moved = str(number + count) in shell.unknown_rounds
        shell.unknown_rounds = (shell.unknown_rounds - {str(number)}) | ({str(number)} if moved else set())
    env.variables["@"] = Variable(given.value._replace(items=items[count:]), False)


def _wait(shell: Interpreter, _command: list[Field], _env: Environment, _sure: bool) -> None:
    """What ran in the background may have ended."""
    shell.running.clear()


_FORMAT = re.compile(r"%s|%%|\\n")


def printf_v(shell: Interpreter, command: list[Field], env: Environment, sure: bool) -> bool:
    """`printf -v LIST '%s:8,' "${HOSTS[@]}"`: the format once for each argument; False where it is another printf."""
    words = [item.text for item in command]
    if words[1:2] != ["-v"] or len(words) < 4 or not re.fullmatch(r"[A-Za-z_]\w*", words[2]):
        return False
    shape, given = words[3], words[4:]
    places = shape.count("%s")
    plain = "%" not in _FORMAT.sub("", shape) and len(words) * len(shape) < _LONGEST_TEXT
    text = UNKNOWN
    if plain and places and given and len(given) % places == 0 and all(UNKNOWN not in word for word in (shape, *given)):
        text = "".join(_filled(shape, given[at : at + places]) for at in range(0, len(given), places))
    shell.assign(words[2], Value(text, fixed=UNKNOWN not in text), command[0].line, env, sure=sure, exported=False)
    return True


def _filled(shape: str, values: list[str]) -> str:
    left = iter(values)
    signs = {"%%": "%", "\\n": "\n"}
    return _FORMAT.sub(lambda found: next(left) if found.group() == "%s" else signs[found.group()], shape)


_LONGEST_TEXT = 1 << 16
BUILTINS: dict[str, Callable[[Interpreter, list[Field], Environment, bool], None]] = {
    "unset": _unset,
    "set": _set,
    "source": _source,
    ".": _source,
    "eval": _eval,
    "exit": _end,
    "return": _end,
    "setenv": _setenv,
    "read": _read,
    "getopts": _getopts,
    "shift": _shift,
    "ulimit": _ulimit,
    "wait": _wait,
    "kill": _wait,
}
