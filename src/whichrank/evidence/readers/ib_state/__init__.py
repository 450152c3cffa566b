"""Network ports: ibstat, ibstatus, ibv_devinfo, perfquery, rdma, ethtool, ip, and files of /sys/class/infiniband."""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.evidence.readers.ib_state.ports import Parser, Port
from whichrank.evidence.text.host_marks import PROMPT
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.plain_lines import plain_lines, reading_of
from whichrank.evidence.text.text_file import at_line_start, begins_line, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.model.moments import rfc3339_ns
from whichrank.records.network import CEILINGS, PortState

NAME = "ib_state"

_OF_HOST = r"([A-Za-z][\w.-]{0,63}): {1,4}"
"""How pdsh, clush and ansible begin the lines of each host."""
_SHAPES = at_line_start(
    rb"(?:" + _OF_HOST.encode() + rb")?(?:CA '[\w-]{1,40}'$|Infiniband device '|hca_id:\s|Settings for [\w.-]{1,32}:$"
    rb"|\d{1,6}: [\w.@-]{1,66}: <[A-Z0-9,_-]{0,200}> mtu )",
    rb"# Port (?:extended )?counters: |NIC statistics:$",
    rb"(?:\d{1,5}/\d{1,5}: |link )[\w-]{1,40}/\d{1,3}:? (?:state|subnet_prefix|\w{3,60} \d)",
    b"(?:" + PROMPT.encode() + rb")ibv_devinfo\b",
)
_COLLECTED = re.compile(rf"{_OF_HOST}(?=CA '|Infiniband device '|hca_id:|Settings for |\d{{1,6}}: [\w.@-]{{1,66}}: <)")
_MOST_HOSTS = 4096
_ON_ONE_LINE = re.compile(r"\s{2,8}(?=[a-z_]{2,20}:)")
"""What stands between the values of a port that somebody put on one line."""
_IN_SYSFS = re.compile(rb"infiniband/[\w-]{1,40}/ports/\d{1,3}/\w")
_OF_RDMA = re.compile(rb"\"physical_state\" ?: ?\"")
_SYSFS = re.compile(
    r"(?P<top>.{0,700}?)infiniband/(?P<dev>[\w-]{1,40})/ports/(?P<port>\d{1,3})/(?:(?:hw_)?counters/)?(?P<name>\w{2,60})$"
)
_SYSFS_STATE = re.compile(
    rb"^(?:[1-7]: [A-Za-z]{2,20}|\d{1,5}(?:\.\d)? Gb/sec.{0,20}|InfiniBand|Ethernet|\d{1,20})\s*$"
)
_SYSFS_NAMES = (
    *CEILINGS, "state", "phys_state", "rate", "link_layer", "port_xmit_wait", "local_ack_timeout_err", "packet_seq_err",
    "out_of_sequence", "rnr_nak_retry_err", "roce_adp_retrans", "out_of_buffer", "rx_icrc_encapsulated",
    "port_xmit_data",
    "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "req_cqe_error", "resp_cqe_error", "duplicate_request",
    "implied_nak_seq_err", "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "rnr_nak_retry_err",
    "unicast_rcv_packets", "unicast_xmit_packets", "multicast_rcv_packets", "multicast_xmit_packets",
    "req_cqe_flush_error", "resp_cqe_flush_error", "req_remote_access_errors", "resp_local_length_error",
    "VL15_dropped", "roce_slow_restart", "roce_adp_retrans_to", "lifespan",
)  # fmt: skip
_FAILED = (b"Failed to open NETLINK_RDMA socket", b"No IB devices found", b"ibpanic:")


def sniff(head: bytes, name: str) -> bool:
    """True for output of one of the commands, and for a single file of sysfs."""
    if not head or not is_text(head):
        return False
    if len(head) < 64 and name in _SYSFS_NAMES and _SYSFS_STATE.match(head):
        return True
    if begins_line(_SHAPES, head) or _IN_SYSFS.search(head) or _OF_RDMA.search(head):
        return True
    return len(head) < 400 and any(words in head for words in _FAILED)


def read(item: Item) -> Reading:
    """One `PortState` per port and moment; of a sysfs tree one per file, tied by `snapshot`."""
    host = host_of_path(item.label)
    single = _SYSFS.match(item.label[-900:])
    if single and item.size < 64:
        return _read_sysfs(item, host, single)
    name = item.label.rsplit("/", 1)[-1]
    parsers = {"": Parser(name)}
    for number, line in plain_lines(item):
        if (match := _COLLECTED.match(line)) and match[1] not in parsers and len(parsers) < _MOST_HOSTS:
            parsers[match[1]] = Parser(name, match[1])
        of, _, rest = line.partition(": ")
        parser, text = (parsers[of], rest) if of in parsers else (parsers[""], line)
        for part in _ON_ONE_LINE.split(text) if "hca_id:" in text else (text,):
            parser.feed(number, part)
    told = [port for parser in parsers.values() for port in parser.ports if _says_something(port)]
    # What `whichrank run` takes from a network namespace names no host: its address does.
    places = {p.taken_ns: p.addresses[0] for p in reversed(told) if p.addresses}
    ports = [_state(item, p.host or host or (places.get(p.taken_ns) if p.taken_ns else None), p) for p in told]
    if not ports:
        failed = any(words in item.head() for words in _FAILED)
        return Reading(
            [], "unusable" if failed else "ignored", "the command found no port" if failed else "no port in it"
        )
    return reading_of(item, [*ports])


def _says_something(port: Port) -> bool:
    return bool(port.state or port.physical or port.rate is not None or port.counters or port.mtu)


def _read_sysfs(item: Item, host: str | None, match: re.Match[str]) -> Reading:
    word = item.head(64).decode("utf-8", "replace").strip()
    port = Port(match["dev"], int(match["port"]), 1, word)
    port.put(match["name"], word)
    return Reading([replace(_state(item, host, port), snapshot=f"{match['top']}infiniband")])


def _state(item: Item, host: str | None, port: Port) -> PortState:
    return PortState(
        ref=Ref(item.label, f"line {port.line}", port.quote, None, host, rfc3339_ns(port.taken_ns or 0)),
        device=port.device,
        port=port.port,
        host=host,
        taken_ns=port.taken_ns,
        snapshot=f"{item.label}:{port.line}",
        state=port.state,
        physical=port.physical,
        rate=port.rate,
        layer=port.layer,
        mtu=port.mtu,
        counters=dict(port.counters),
        addresses=tuple(port.addresses),
        line=port.line,
    )
