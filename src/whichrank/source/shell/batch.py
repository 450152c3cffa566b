"""Directives of batch systems, and the lists of variables that Slurm, PBS and LSF take."""

from __future__ import annotations

import re
from typing import NamedTuple

from whichrank.facts.variables.environment import catalogue

_DIRECTIVE = r"#(?:SBATCH|PBS|BSUB|\$|COBALT|flux:|OAR)\s+(.*)"
_OPTION = {
    "#SBATCH": r"(?:^|\s)--export[= ](\"[^\"]*\"|'[^']*'|\S+)",
    "#PBS": r"(?:^|\s)-v\s*(\"[^\"]*\"|'[^']*'|\S+)",
    "#$": r"(?:^|\s)-v\s*(\"[^\"]*\"|'[^']*'|\S+)",
    "#BSUB": r"(?:^|\s)-env\s+(\"[^\"]*\"|'[^']*'|\S+)",
    "#flux:": r"(?:^|\s)--env[= ](\"[^\"]*\"|'[^']*'|\S+)",
}
_ITEM = re.compile(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+")
SPECIAL = frozenset({"ALL", "NONE", "NIL"})


class Listed(NamedTuple):
    """A list of variables: NAME=VALUE, NAME, and the words that mean all or none."""

    sets: tuple[tuple[str, str], ...]
    names: frozenset[str]
    special: frozenset[str]
    split: tuple[tuple[str, str], ...]
    """Variable and the piece of its value that the comma cut off."""

    @property
    def passes(self) -> frozenset[str] | None:
        """What gets through; None for everything."""
        return None if "ALL" in self.special else self.names | {name for name, _ in self.sets}


def directive(comment: str) -> tuple[str, str]:
    """The batch system and the list of variables in a line such as `#SBATCH --export=ALL,A=1`."""
    for system, option in _OPTION.items():
        if comment.startswith(system) and (match := re.search(option, comment[len(system) :])):
            return system[1:], match[1]
    return "", ""


def is_directive(comment: str) -> bool:
    return comment.startswith(tuple(_OPTION)) and bool(re.match(_DIRECTIVE, comment))


_COMMAND = re.compile(r"^[^\S\n]*[^#\s]", re.MULTILINE)


def last_directive(text: str, first_line: int) -> int:
    """The line where sbatch and qsub stop reading directives: that of the first command."""
    match = _COMMAND.search(text)
    return first_line + text.count("\n", 0, match.start()) if match else first_line + text.count("\n") + 1


def listed(text: str, system: str) -> Listed:
    """`ALL,A=1,B` as Slurm, PBS and LSF take it: commas separate variables, whatever a value was meant to be."""
    if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]:
        text = text[1:-1]
    sets: list[tuple[str, str]] = []
    names, special, split = set(), set(), []
    for item in (found.strip() for found in _ITEM.findall(text)):
        name, equals, value = item.partition("=")
        if not equals and name.upper() in SPECIAL and (system == "BSUB" or name in SPECIAL):
            special.add(name.upper())
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            sets.append((name, _unquoted(value)))
        elif sets and not equals and _takes_list(sets[-1][0]) and _is_rest(sets[-1][0], name):
            split.append((sets[-1][0], item))
        elif re.fullmatch(r"[A-Za-z_]\w*", name):
            names.add(name)
    return Listed(tuple(sets), frozenset(names), frozenset(special), tuple(split))


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0] else value


def _is_rest(variable: str, piece: str) -> bool:
    """Part of a value, not the name of another variable."""
    if piece != piece.upper() or not piece.strip("0123456789"):
        return True
    known = catalogue().get(variable)
    return known is not None and piece in {value.upper() for value in known.values}


def _takes_list(name: str) -> bool:
    variable = catalogue().get(name)
    return variable is not None and (variable.kind == "list" or name.endswith(("IFNAME", "HCA", "SUBSYS", "ALGO")))
