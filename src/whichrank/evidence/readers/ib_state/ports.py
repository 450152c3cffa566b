"""Ports of RDMA adapters and network interfaces, as the usual commands print them."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.evidence.text.host_marks import host_above
from whichrank.evidence.text.namespace_looks import address_of, moment_of

# Names of perfquery -> the kernel's.
COUNTERS = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed", "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors", "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors", "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "VL15Dropped": "vl15_dropped",
    "PortXmitWait": "port_xmit_wait", "PortXmitData": "port_xmit_data", "PortRcvData": "port_rcv_data",
    "PortXmitPkts": "port_xmit_packets", "PortRcvPkts": "port_rcv_packets",
}  # fmt: skip

_CA = re.compile(r"CA '([\w-]{1,40})'$")
_CA_PORT = re.compile(r"\s+Port (\d{1,3}):$")
_STATUS_HEAD = re.compile(r"Infiniband device '([\w-]{1,40})' port (\d{1,3}) status:")
_HCA = re.compile(r"hca_id:\s+([\w-]{1,40})$")
_HCA_PORT = re.compile(r"\s*port:\s+(\d{1,3})$")
_VALUE = re.compile(r"\s*([A-Za-z_][A-Za-z_ -]{1,30}?):\s+(\S.{0,120})$")
_PERF_HEAD = re.compile(r"# Port (?:extended )?counters: (?:Lid \d{1,6}|.{0,60}?) port (\d{1,3})")
_PERF = re.compile(r"([A-Za-z][A-Za-z0-9]{2,40}):\.{1,60}(\d{1,20})$")
_RDMA_LINK = re.compile(
    r"(?:\d{1,5}/\d{1,5}: |link )([\w-]{1,40})/(\d{1,3}):? (?:\w{1,20} \S{1,60} ){0,12}?"
    r"state (\w{1,12}) physical_state (\w{1,24})"
)
_RDMA_COUNTS = re.compile(r"link ([\w-]{1,40})/(\d{1,3}) ((?:[a-z]\w{2,60} \d{1,20} ?){2,400})$")
_RDMA_JSON = re.compile(
    r'"ifname": ?"([\w-]{1,40})", ?"port": ?(\d{1,3})(?:,[^{}\[\]]{0,400}?)?'
    r'"state": ?"(\w{1,12})", ?"physical_state": ?"(\w{1,24})"'
)
_ETHTOOL = re.compile(r"Settings for ([\w.-]{1,32}):$")
_NIC_STATISTICS = re.compile(r"NIC statistics:$")
_NIC_COUNT = re.compile(r"\s{2,10}([a-z][\w.\[\] -]{1,60}): (\d{1,20})$")
_ASKED = re.compile(
    r"(?:ethtool(?: -S)?|perfquery(?: -\w)*? -C) ([\w.-]{1,32})(?: -P (\d{1,3}))?\s*$|ethtool -S ([\w.-]{1,32})"
)
_DEVINFO = re.compile(r"ibv_devinfo (?:-\w )*-d ([\w-]{1,40})")
_IP_LINK = re.compile(
    r"\d{1,6}: ([\w.-]{1,32})(?:@[\w.-]{1,32})?: <([A-Z0-9,_-]{0,200})> mtu (\d{1,6}) .{0,120}?state (\w{1,12})"
)
_CARRIER = re.compile(r"\bcarrier_changes (\d{1,12})\b")
_IP_TITLES = re.compile(r"\s{2,8}(RX|TX): {1,4}(bytes\s.{0,120})$")
_GREPPED = re.compile(
    r"(?:\S{0,200}/)?infiniband/([\w-]{1,40})/ports/(\d{1,3})/(?:(?:hw_)?counters/)?(\w{2,60})\s?[:=]\s?(\S.{0,80})$"
)
_ALL_COUNTERS = re.compile(r"infiniband/([\w-]{1,40})/ports/(\d{1,3})/(?:hw_)?counters/\*")
_TWO_LOOKS = re.compile(r"\s{0,8}([a-z][a-z0-9_]{3,60})\s{1,80}(\d{1,20})\s{1,40}(\d{1,20})$")
"""A counter before and after something, in two columns."""
_RATE = re.compile(r"(\d{1,7}(?:\.\d)?)\s?(G|M)?b?/?s?", re.IGNORECASE)
_PORT_NAME = re.compile(
    r"(mlx[45]_\d{1,3}|bnxt_re\d{1,3}|irdma\d{1,3}|hns_\d{1,3}|rocep\w{1,20}|ibp\w{1,20}|rdmap\w{1,20}|efa_\d{1,3})(?:[._-]p?(\d{1,2})(?=[._-]|$))?"
)
_NETDEV_NAME = re.compile(r"(?:^|[._-])((?:eth|en[ospx]|ib|bond|rdma|ens|eno)\w{0,14}\d\w{0,14})(?=[._-]|$)")


class Port(Struct):
    """A port while its values come in."""

    device: str
    port: int | None
    line: int
    quote: str
    state: str = ""
    physical: str = ""
    rate: float | None = None
    layer: str = ""
    mtu: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    taken_ns: int | None = None
    host: str | None = None
    """By the prompt above it, or the name before each line."""

    def put(self, name: str, value: str) -> None:
        """One named value, in any command's spelling."""
        key = name.strip().lower().replace(" ", "_")
        word = value.strip()
        if key in ("state", "port_state"):
            self.state = _state(word)
        elif key in ("phys_state", "physical_state"):
            self.physical = _state(word).replace("_", "").replace(" ", "")
        elif key in ("rate", "speed"):
            self.rate = rate(word)
        elif key == "link_layer":
            self.layer = word[:20]
        elif key in ("active_mtu", "mtu") and (match := re.match(r"\d{2,6}", word)):
            self.mtu = int(match[0])
        elif key == "link_detected":
            self.state = {"yes": "UP", "no": "DOWN"}.get(word.lower(), "")
        elif word.isdecimal() and len(word) <= 20 and len(self.counters) < 4096 and not key.endswith(("lid", "lmc")):
            self.counters[key] = int(word)


def _state(word: str) -> str:
    """`4: ACTIVE`, `PORT_ACTIVE (4)`, `Active`, `LinkUp`: the word alone, in upper case."""
    plain = re.sub(r"^\d{1,2}: |\s?\(\d{1,2}\)$", "", word.strip()).upper()
    return plain.removeprefix("PORT_")[:24]


def rate(word: str) -> float | None:
    """Gb/s of `400`, `400 Gb/sec (4X NDR)`, `100000Mb/s`."""
    match = _RATE.match(word)
    if not match:
        return None
    return float(match[1]) / (1000 if match[2] and match[2].upper() == "M" else 1)


class Parser:
    """Lines in, ports out; a port that comes again is another moment."""

    def __init__(self, name: str, host: str | None = None) -> None:
        self.ports: list[Port] = []
        self._now: Port | None = None
        self._device = ""
        named = _PORT_NAME.search(name)
        self._named = named[1] if named else ""
        self._named_port = int(named[2]) if named and named[2] else None
        other = _NETDEV_NAME.search(name.rpartition(".")[0] or name)
        self._netdev = other[1] if other else ""
        self._counting = False
        self._titles: tuple[str, list[str]] | None = None
        self._taken_ns: int | None = None
        self._host = host
        self._before: Port | None = None

    def _begin(self, device: str, port: int | None, number: int, quote: str) -> Port:
        self._now = Port(device, port, number, quote.strip()[:400], taken_ns=self._taken_ns, host=self._host)
        if len(self.ports) < 1 << 16:
            self.ports.append(self._now)
        self._counting, self._before = False, None
        return self._now

    def feed(self, number: int, line: str) -> None:
        if host := host_above(line):
            self._host, self._now = host, None
            if asked := _DEVINFO.search(line):  # its heading may be filtered out
                self._begin(asked[1], 1, number, line)
        if self._titles is not None:
            self._ip_counts(line)
        elif not (self._rdma(number, line) or self._heading(number, line)):
            self._value(number, line)

    def _rdma(self, number: int, line: str) -> bool:
        if match := _RDMA_LINK.match(line):
            port = self._begin(match[1], int(match[2]), number, line)
            port.put("state", match[3])
            port.put("physical_state", match[4])
            return True
        if match := _RDMA_COUNTS.match(line):
            port = self._begin(match[1], int(match[2]), number, line)
            words = match[3].split()
            for name, value in zip(words[::2], words[1::2], strict=False):
                port.put(name, value)
            return True
        if '"ifname"' not in line:
            return False
        for match in _RDMA_JSON.finditer(line):
            port = self._begin(match[1], int(match[2]), number, match[0])
            port.put("state", match[3])
            port.put("physical_state", match[4])
        return True

    def _heading(self, number: int, line: str) -> bool:
        if match := _CA.match(line) or _HCA.match(line):
            self._device, self._now = match[1], None
        elif self._device and (match := _CA_PORT.match(line) or _HCA_PORT.match(line)):
            self._begin(self._device, int(match[1]), number, f"{self._device} port {match[1]}")
        elif match := _STATUS_HEAD.match(line):
            self._begin(match[1], int(match[2]), number, line)
        elif match := _PERF_HEAD.match(line):
            port = self._named_port if self._named_port is not None else int(match[1])
            self._begin(self._named or "port", port, number, line)
        elif match := _ETHTOOL.match(line):
            self._begin(match[1], None, number, line)
        elif _NIC_STATISTICS.match(line):
            self._begin(self._netdev or self._named or "interface", None, number, line)
            self._counting = True
        elif match := _IP_LINK.match(line):
            self._ip_link(match, number, line)
        elif (taken_ns := moment_of(line[:64].encode())) is not None:
            self._taken_ns, self._now = taken_ns, None
        elif match := _ALL_COUNTERS.search(line[:200]):
            before = self._begin(match[1], int(match[2]), number, line)
            self._begin(match[1], int(match[2]), number + 1, line)  # a line of its own: another moment
            self._before = before
        elif match := _ASKED.search(line[:200]):
            if "perfquery" in line:
                self._named, self._named_port = match[1] or self._named, int(match[2]) if match[2] else None
            else:
                self._netdev = match[1] or match[3] or self._netdev
        else:
            return False
        return True

    def _ip_link(self, match: re.Match[str], number: int, line: str) -> None:
        port = self._begin(match[1], None, number, line)
        port.mtu, port.state = int(match[3]), match[4]
        if changes := _CARRIER.search(line):
            port.counters["carrier_changes"] = int(changes[1])
        if "UP" in match[2].split(",") and "LOWER_UP" not in match[2] and match[1] != "lo":
            port.physical = "NOCARRIER"

    def _value(self, number: int, line: str) -> None:
        if match := _GREPPED.match(line):
            port = self._now
            same = port is not None and (port.device, port.port) == (match[1], int(match[2]))
            if port is None or not same or match[3] in port.counters:
                port = self._begin(match[1], int(match[2]), number, line)
            port.put(match[3], match[4])
        elif self._now is None or self._two_looks(line):
            return
        elif match := _PERF.match(line):
            if match[1] in COUNTERS:
                self._now.counters[COUNTERS[match[1]]] = int(match[2])
        elif self._counting:
            if match := _NIC_COUNT.match(line):
                self._now.put(match[1], match[2])
        elif match := _IP_TITLES.match(line):
            self._titles = (match[1].lower(), match[2].split())
        elif address := address_of(line):
            if len(self._now.addresses) < 64:
                self._now.addresses.append(address)
        elif match := _VALUE.match(line):
            self._now.put(match[1], match[2])

    def _two_looks(self, line: str) -> bool:
        match = _TWO_LOOKS.match(line) if self._before is not None else None
        if match and self._before is not None and self._now is not None:
            self._before.put(match[1], match[2])
            self._now.put(match[1], match[3])
        return match is not None

    def _ip_counts(self, line: str) -> None:
        side, names = self._titles or ("", [])
        self._titles = None
        values = line.split()
        if self._now is not None and all(v.isdecimal() for v in values[: len(names)]):
            for name, value in zip(names, values, strict=False):
                self._now.put(f"{side}_{name}", value)
