"""Whose addresses are whose: interfaces with their addresses (`ip -br addr`, `ip -o addr`, and what people shorten them
to), the GIDs of RDMA ports (`show_gids`), the names of addresses (`getent hosts`, /etc/hosts), and what people call
hosts for short (`node1 = gpu-h02`)."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from msgspec.structs import replace

from whichrank.evidence.text.host_marks import host_above, mark_of
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.own_prefix import NO_HOST
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.host import HostName
from whichrank.records.network import PortState

_LARGEST = 1 << 18
_LONGEST, _MOST = 1000, 4096
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}"
_LISTED = re.compile(
    r"(?:^|(?<=\s))(?:\d{1,5}: )?(?P<device>[a-z][\w.-]{1,31})(?:@[\w.-]{1,32})?:?\s{1,40}"
    rf"(?:(?:UP|DOWN|UNKNOWN)\s{{1,40}}|inet )(?P<address>{_ADDRESS})/\d{{1,2}}\b"
)
"""`eth0  UP  10.0.0.7/24`, `2: eth0    inet 10.0.0.7/24`."""
_OF_HOST = re.compile(r"([A-Za-z][\w.-]{1,62}): (?=\S)")
"""How pdsh, clush and people begin the lines of each host."""
_SPOKEN_OF = re.compile(rf"(?<![\w.-])(?=\S{{0,62}}[\d-])([A-Za-z][\w.-]{{1,62}}) ?\(({_ADDRESS})[),; ]")
"""`# in the container, node7 (10.0.0.7)`: whose interfaces follow, if one of them has that address."""
_NAME = r"[A-Za-z][\w.-]{1,252}"
_NAMED = re.compile(rf"\s{{0,8}}({_ADDRESS})[ \t]{{1,40}}({_NAME}(?:[ \t]{{1,8}}{_NAME}){{0,5}})\s{{0,8}}$")
"""`10.0.0.7   node7.lan node7`."""
_SHORT = r"(?:node|host|worker|machine|server|pod)[_-]?\d{1,5}"
_LONG = rf"(?!{_SHORT}\b)(?=[\w.-]{{0,60}}\d)[A-Za-z][\w.-]{{1,60}}"
_CALLED = re.compile(
    rf"(?:^|[\s,;(])(?:(?P<short>{_SHORT}) ?(?:=|->) ?(?P<name>{_LONG})"
    rf"|(?P<name_first>{_LONG}) ?(?:=|->) ?(?P<short_last>{_SHORT}))(?=[\s,;)]|$)"
)
"""`gpu-h02 = node1 (ranks 4-7)`, `node1=gpu-h02`."""
_SHORT_WITHIN = re.compile(rf"{_SHORT} ?(?:=|->) ?[A-Za-z]|[\w.-] ?(?:=|->) ?{_SHORT}".encode())
_LISTS = (b"inet ", b" UP ", b" DOWN ", b" UNKNOWN ")
_TABLES = (b"getent", b"/etc/hosts", b"localhost")
"""One of these stands where interfaces are listed, or addresses are named."""

_GID = re.compile(r"\s{0,8}[a-z]\w{1,31}\s{1,16}\d{1,3}\s{1,16}\d{1,3}\s{1,16}([\da-f:]{15,39})\s")
"""A row of show_gids: `mlx5_2  1  3  fe80:0000:…`."""
_OF_GETENT = ("STREAM", "DGRAM", "RAW")
"""Kinds of sockets, which `getent ahosts` lists between the address and the name."""


def fits(head: bytes, name: str) -> bool:
    """Whether the beginning lists an interface with its address, or is of a table of names."""
    lists, tables = any(map(head.__contains__, _LISTS)), _of_names(head, name)
    lines = [line[:_LONGEST] for line in head.decode("utf-8", "replace").split("\n")] if lists or tables else []
    if (lists and any(map(_LISTED.search, lines))) or (tables and any(map(_NAMED.match, lines))):
        return True
    return _SHORT_WITHIN.search(head) is not None or b"show_gids" in head or b"GID" in head


def _of_names(head: bytes, name: str) -> bool:
    return name.lower().startswith("hosts") or any(map(head.__contains__, _TABLES))


def read(item: Item) -> list[PortState | HostName]:
    """One `PortState` per interface and address, one `HostName` per row of a table."""
    with item.open() as stream:
        text = stream.read(_LARGEST).decode("utf-8", "replace")
    names = _of_names(item.head(), item.label.rpartition("/")[2])
    host = host_of_path(item.label)
    found: list[PortState | HostName] = []
    spoken_of: tuple[str, str, int] | None = None
    prompt: str | None = None
    """The host of which a line spoke last, its address, and what was found before."""
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole[:_LONGEST]
        above, mark = host_above(line), mark_of(line)
        host = above or host
        prompt = mark.host if mark and mark.host else prompt
        if said := _SPOKEN_OF.search(line):
            spoken_of = (said[1], said[2], len(found))
        if len(found) >= _MOST:
            break
        before = _OF_HOST.match(line)
        of = before[1] if before and not above else host
        for match in _LISTED.finditer(line):
            if match["device"] != of:
                ref, place = Ref(item.label, f"line {number}", match[0].strip(), None, of), f"{item.label}:{number}"
                addresses = (match["address"],)
                found.append(PortState(ref, match["device"], host=of, snapshot=place, addresses=addresses, line=number))
                if spoken_of is not None and spoken_of[1] in addresses:
                    of = host = _now_of(found, spoken_of, ref)
        if ":" in line and host is not None and (gid := _GID.match(line)) and (address := _plain(gid[1])):
            found.append(HostName(Ref(item.label, f"line {number}", line.strip()[:300], None, host), address, (host,)))
        if names and (row := _NAMED.match(line)):
            own = host or (prompt if prompt in row[2].split() else None)  # the names below it bear it out
            ref = Ref(item.label, f"line {number}", line.strip()[:300], None, own)
            if called := tuple(name for name in row[2].split() if name not in _OF_GETENT):
                found.append(HostName(ref, row[1], called))
    return [*found, *_called(item, text)]


def _plain(address: str) -> str | None:
    """An address of IPv6 as everybody writes it."""
    try:
        return IPv6Address(address).compressed
    except ValueError:
        return None


def _called(item: Item, text: str) -> list[HostName]:
    """What hosts are called for short: two of them or more, each with one name, and no name twice."""
    told: dict[tuple[str, str], Ref] = {}
    for number, line in enumerate(text.split("\n"), 1):
        maybe = len(told) < _MOST and ("=" in line or "->" in line)
        for match in _CALLED.finditer(line[:_LONGEST]) if maybe else ():
            pair = (match["short"] or match["short_last"], match["name"] or match["name_first"])
            if not NO_HOST.match(pair[1]):
                told.setdefault(pair, Ref(item.label, f"line {number}", line.strip()[:300]))
    shorts, names = {short for short, _ in told}, {name for _, name in told}
    if not 1 < len(told) == len(shorts) == len(names):
        return []
    return [HostName(ref, short, (name,)) for (short, name), ref in told.items()]


def _now_of(found: list[PortState | HostName], spoken_of: tuple[str, str, int], ref: Ref) -> str:
    """The interfaces since a line spoke of a host are that host's: one of them has its address."""
    host, address, begin = spoken_of
    for at in range(begin, len(found)):
        port = found[at]
        if isinstance(port, PortState):
            found[at] = replace(port, host=host, ref=replace(port.ref, host=host))
    found.append(HostName(ref, address, (host,)))
    return host
