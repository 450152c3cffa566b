"""Numbers that are given as ports and are none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import others
from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash, SettingsFile

LARGEST_PORT = 65535


def too_large(name: str, port: str, ref: Ref) -> Clash | None:
    """A number that is not a port."""
    if not re.fullmatch(r"\d{5,12}", port) or int(port) <= LARGEST_PORT:
        return None
    return Clash(
        name, ref, f"{port} is not a port: the largest is {LARGEST_PORT}", f"Write a number up to {LARGEST_PORT}."
    )


def judged(file: SettingsFile) -> Iterator[Clash]:
    """Ports of variables, and of launches that don't take them from there."""
    said = set()
    for each in file.assignments:
        match = (
            re.fullmatch(r"(?:[^\s:]{1,255}:)?(\d{5,12})", each.value or "")
            if _PORT_NAMES.fullmatch(each.name)
            else None
        )
        clash = too_large(each.name, match[1], each.ref) if match else None
        if match is not None and clash is not None:
            said.add(match[1])
            if each.name not in others():  # those are judged by their values
                yield clash
    for port in (launch.port for launch in file.launches if launch.port is not None):
        clash = too_large(port.name, port.text, port.ref)
        if clash is not None and port.text not in said:
            yield clash


_PORT_NAMES = re.compile(r"\w{0,40}(?:MASTER|RDZV|RENDEZVOUS|PROCESS)_PORT|\w{0,40}RDZV_ENDPOINT", re.IGNORECASE)
