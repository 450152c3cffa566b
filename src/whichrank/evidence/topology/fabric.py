"""Cables of an InfiniBand fabric, out of what ibnetdiscover and iblinkinfo print."""

from __future__ import annotations

import re

from whichrank.records.topology import Cable, CableEnd

_MOST = 64 << 20
_NODE = re.compile(r'^(Switch|Ca|Rt)\s+\d+ "([SHR]-[0-9a-f]{16})"\s+# "([^"]{0,120})"')
_PORT = re.compile(
    r'^\[(\d{1,3})\](?:\([0-9a-f]{1,16}\))?\s+"([SHR]-[0-9a-f]{16})"\[(\d{1,3})\](?:\([0-9a-f]{1,16}\))?\s+#\s?(.{0,300})$'
)
_SPEED = re.compile(r"(\d{1,2}x[A-Z0-9]{2,6})\s*$")
_HEAD = re.compile(r"^(CA|Switch|RT): (?:(0x[0-9a-f]{16}) )?(.{1,120}?):$")
_LINK = re.compile(
    r"^\s+(?:0x[0-9a-f]{16}\s+)?\d{1,6}\s+(\d{1,3})\[ {0,4}\] ==\((.{1,60})\)==>\s+\d{1,6}\s+(\d{1,3})\[ {0,4}\] "
    r'"([^"]{0,120})" \((.{0,200})\)'
)


def is_fabric(text: str) -> bool:
    return "switchguid=" in text or "caguid=" in text or ")==>" in text


def read(text: str) -> list[Cable]:
    """Every cable once, adapters before switches."""
    text = text[:_MOST]
    found = _from_links(text) if ")==>" in text else _from_discovery(text)
    once: dict[frozenset[tuple[str, int]], Cable] = {}
    for cable in found:
        key = frozenset({(cable.a.guid or cable.a.node, cable.a.port), (cable.b.guid or cable.b.node, cable.b.port)})
        if key not in once or not cable.a.is_switch:
            once[key] = cable
    return list(once.values())


def _from_discovery(text: str) -> list[Cable]:
    names: dict[str, tuple[str, bool]] = {}
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if match := _NODE.match(line):
            names[match[2]] = (match[3], match[1] == "Switch")
    cables, here = [], ""
    for line in lines:
        if match := _NODE.match(line):
            here = match[2]
        elif here and (match := _PORT.match(line)):
            speed = _SPEED.search(match[4])
            cables.append(
                Cable(_end(names, here, int(match[1])), _end(names, match[2], int(match[3])), speed[1] if speed else "")
            )
    return cables


def _end(names: dict[str, tuple[str, bool]], guid: str, port: int) -> CableEnd:
    name, is_switch = names.get(guid, (guid, guid.startswith("S-")))
    return CableEnd(name, port, is_switch, guid)


def _from_links(text: str) -> list[Cable]:
    switches = {match[3] for line in text.splitlines() if (match := _HEAD.match(line)) and match[1] == "Switch"}
    cables, here = [], ""
    for line in text.splitlines():
        if match := _HEAD.match(line):
            here = match[3]
        elif here and (match := _LINK.match(line)):
            words = match[2].split()
            state = words[-1] if words else ""
            speed = " ".join(word for word in words if word[:1].isdigit() or word == "Gbps")
            cables.append(
                Cable(
                    CableEnd(here, int(match[1]), here in switches),
                    CableEnd(match[4], int(match[3]), match[4] in switches), speed, state, match[5].strip(),
                )
            )  # fmt: skip
    return cables
