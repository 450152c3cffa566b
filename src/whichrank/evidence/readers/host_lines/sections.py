"""Texts of several hosts or ranks, one below the other: headings, prompts and typed commands say whose lines follow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.text.host_marks import NODE, Mark, ends, mark_of
from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.host import HostName, HostSection

_MOST_BYTES, _MOST, _LONGEST = 1 << 20, 10_000, 300
"""Longer texts are those of programs. Also sections of a text, and letters of a line."""
_CODE = (".py", ".sh", ".sbatch", ".c", ".cc", ".cpp", ".cu", ".h", ".json", ".yaml", ".yml", ".toml", ".rst")
_RULE = re.compile(r"[-=]{6,200}")
_ALONE = re.compile(r"(?=\S{0,40}[\d-])([A-Za-z][\w.-]{1,62})")
_ASKED = re.compile(r"\s{0,4}[^\n$#>]{0,60}[$#>] hostname(?: -\w)?")


def fits(head: bytes, name: str) -> bool:
    """Whether a line at the beginning names a host or a rank for those below it."""
    if name.lower().endswith(_CODE):
        return False
    return any(mark.names for _, _, mark in _marks(enumerate(head.decode("utf-8", "replace").split("\n"), 1)))


def read(item: Item) -> list[HostSection | HostName]:
    """Where sections begin, of which host and rank, and addresses that headings give to hosts."""
    if item.size > _MOST_BYTES:
        return []
    found: list[HostSection | HostName] = []
    host, rank = Mark(None), Mark(None)
    """What the lines are below."""
    for number, line, mark in _marks(plain_lines(item)):
        if mark.mark == NODE and host.mark == "$":
            continue  # somebody asked for this pod: the job goes by its name
        if mark.host is not None:
            host = rank = mark
        elif mark.names:
            rank = mark
        elif ends(mark, host):
            host = rank = Mark(None)
        elif ends(mark, rank):
            rank = Mark(None)
        else:
            continue
        ref = Ref(item.label, f"line {number}", line.strip()[:200], None, mark.host)
        found.append(HostSection(ref, number, host.host, host.sure, rank.rank, rank.local_rank))
        if mark.host is not None and mark.address is not None:
            found.append(HostName(ref, mark.address, (mark.host,)))
        if len(found) >= _MOST:
            break
    return found


def _marks(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, Mark]]:
    """The lines that say something of the host of those below; also names between two rules, as of dshbak and clush,
    and what `hostname` answered."""
    before = ["", ""]
    for number, whole in lines:
        line = whole[:_LONGEST].rstrip()
        if (
            line[:1] in ("-", "=")
            and _RULE.fullmatch(line)
            and _RULE.fullmatch(before[0])
            and (alone := _ALONE.fullmatch(before[1]))
        ):
            yield number, before[1], Mark(alone[1], sure=False, mark="rule")
        elif "hostname" in before[1] and _ASKED.fullmatch(before[1]) and (alone := _ALONE.fullmatch(line.strip())):
            yield number, line, Mark(alone[1], mark="@")
        elif mark := mark_of(line):
            yield number, line, mark
        before = [before[1], line]
