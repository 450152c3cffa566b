"""Cables of an InfiniBand fabric, out of what ibnetdiscover and iblinkinfo print."""

from __future__ import annotations

import re
from collections import Counter

from whichrank.records.topology import Cable, CableEnd

_MOST = 64 << 20
_NODE = re.compile(r'^(Switch|Ca|Rt)\s+\d+ "([SHR]-[0-9a-f]{16})"\s+# "([^"]{0,120})"')
_PORT = re.compile(
    r'^\[(\d{1,3})\](?:\([0-9a-f]{1,16}\))?\s+"([SHR]-[0-9a-f]{16})"\[(\d{1,3})\](?:\([0-9a-f]{1,16}\))?\s+#\s?(.{0,300})$'
)
_SPEED = re.compile(r"(\d{1,2}x[A-Z0-9]{2,6})\s*$")
_QUOTED = re.compile(r'^"([^"]{0,120})"')
_HEAD = re.compile(r"^(CA|Switch|RT|Router): (?:(0x[0-9a-f]{16}) )?(.{1,120}?):$")
# Ports of modular switches have a number on the front panel too: `1[ 7]`. With -p more stands behind the state.
_AT = r"\d{1,6}\s+(\d{1,3})\[[ \d]{0,4}\] "
_WIRE = r"==\((.{1,120})\)==>\s+"
_OTHER = r'"([^"]{0,120})" \((.{0,200})\)'
_LINK = re.compile(r"^\s+(?:0x[0-9a-f]{16}\s+)?" + _AT + _WIRE + _AT + _OTHER)
_ONE_LINE = re.compile(r'^0x[0-9a-f]{16} "([^"]{0,120})"\s+' + _AT + _WIRE + r"0x[0-9a-f]{16}\s+" + _AT + _OTHER)
"""iblinkinfo --line"""
_STATE = re.compile(r"([A-Za-z]{2,12})/\s*([A-Za-z]{2,16})")
_MANAGED = re.compile(r"^[A-Z]{2}\d;([^:;]{1,64}):[^/]{1,32}((?:/[SL]\d{1,3}){0,2})(?:/U\d{1,3})?$")


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
    # Switches that nobody named are all called the same: those are told apart by their GUIDs.
    often = Counter(name for name, is_switch in names.values() if is_switch)
    names |= {g: (f"{name} ({g[2:]})", switch) for g, (name, switch) in names.items() if switch and often[name] > 1}
    cables, here = [], ""
    for line in lines:
        if match := _NODE.match(line):
            here = match[2]
        elif here and (match := _PORT.match(line)):
            # Of a file that was cut the other end is known by what this line remarks.
            if match[2] not in names and (quoted := _QUOTED.match(match[4])):
                names[match[2]] = (quoted[1], match[2].startswith("S-"))
            speed = _SPEED.search(match[4])
            cables.append(
                Cable(_end(names, here, int(match[1])), _end(names, match[2], int(match[3])), speed[1] if speed else "")
            )
    return cables


def _end(names: dict[str, tuple[str, bool]], guid: str, port: int) -> CableEnd:
    name, is_switch = names.get(guid, (guid, guid.startswith("S-")))
    return CableEnd(_short(name), port, is_switch, guid)


def _short(name: str) -> str:
    """`leaf01` for `MF0;leaf01:MQM9790/U1`, as managed switches describe themselves."""
    match = _MANAGED.match(name)
    return match[1] + match[2].replace("/", " ") if match else name


def _from_links(text: str) -> list[Cable]:
    lines = text.splitlines()
    switches = {match[3] for line in lines if (match := _HEAD.match(line)) and match[1] == "Switch"}
    cables, here = [], ""
    for line in lines:
        if match := _HEAD.match(line):
            here = match[3]
        elif here and (match := _LINK.match(line)):
            ends = (_named(here, match[1], here in switches), _named(match[4], match[3], match[4] in switches))
            cables.append(_cable(*ends, match[2], match[5]))
        elif match := _ONE_LINE.match(line):
            own, other = match[1].strip(), match[5].strip()
            ends = (_named(own, match[2], _is_switch(own)), _named(other, match[4], _is_switch(other)))
            cables.append(_cable(*ends, match[3], match[6]))
    return cables


def _is_switch(name: str) -> bool:
    """A single line tells no kind of node: adapters are called `host device`, `host HCA-1`."""
    words = name.split()
    return not (len(words) == 2 and re.fullmatch(r"(?i)hca-\d+|[a-z]\w{1,12}_\d{1,3}|ib\w{1,14}", words[1]))


def _named(name: str, port: str, is_switch: bool) -> CableEnd:
    return CableEnd(_short(name), int(port), is_switch)


def _cable(a: CableEnd, b: CableEnd, told: str, remark: str) -> Cable:
    state = _STATE.search(told)
    words = told[: state.start()].split() if state else told.split()
    speed = " ".join(word for word in words if word[:1].isdigit() or word == "Gbps")
    return Cable(a, b, speed, state[2] if state else "", remark.strip())
