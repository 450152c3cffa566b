"""Other addresses in the place of real ones: what was equal stays equal, what shared a network still does."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable

_PRIVATE = tuple(
    (int(net.network_address), net.prefixlen)
    for net in map(
        ipaddress.IPv4Network,
        (
            "172.17.0.0/16", "172.18.0.0/16", "172.19.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
            "169.254.0.0/16", "100.64.0.0/10", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
        ),
    )
)  # fmt: skip
"""Docker's own network, RFC 1918, 3927, 6598 and 5737: the kind of network stays recognisable."""
_STAND_IN = int(ipaddress.IPv4Address("198.18.0.0"))
"""RFC 2544: 512 networks of 256 that no host on the Internet has."""
_MOST_KNOWN = 1 << 16
_RESERVED = int(ipaddress.IPv4Address("240.0.0.0"))

# An interface may stand before an address, as NCCL prints it: ib0:fd00::1, bond0.12:fe80::1.
_LEFT = (
    r"(?:(?<![0-9A-Za-z_:.\-])|(?<=\\[nrtbf])|(?<=\dm)|(?<=[A-Za-z.]\d:)|(?<=[A-Za-z.]\d\d:)|(?<=\.\d{3}:)|(?<=\.\d{4}:)"
    r"|(?<=[A-Za-z]{2}[G-Zg-z]:))"
)
UUID = r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Fa-f])"
MAC = (
    r"(?<![0-9A-Fa-f:\-])(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"
    r"|(?<![0-9A-Za-z\-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![0-9A-Za-z\-])"
    r"|(?<![0-9A-Za-z.])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![0-9A-Za-z.])"
)
V6 = _LEFT + r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{1,4})?(?:/\d{1,3})?(?![0-9A-Za-z_])"
V4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2}(?!\d))?(?![\d])(?!\.\d)"
DASHED = r"(?<![\d.\-_])(?:10|172|192)(?:(?:-\d{1,3}){3}|(?:_\d{1,3}){3})(?![\d\-_]\d)"
# Each with what is in every one of them and begins with a sign, so that a search jumps from sign to sign.
ALL = tuple(
    (re.compile(f"(?P<{kind}>{shape})"), re.compile(hint))
    for kind, shape, hint in (
        ("uuid", r"(?<![0-9A-Fa-f])" + UUID, r"-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-"),
        ("mac", MAC, r":[0-9A-Fa-f]{2}:|-[0-9A-Fa-f]{2}-|\.[0-9A-Fa-f]{4}\."),
        ("ipv6", V6, r":[0-9A-Fa-f]{0,4}:"),
        ("ipv4", V4, r"\.\d{1,3}\."),
        ("dashed_ipv4", DASHED, r"-\d{1,3}-|_\d{1,3}_"),
    )
)
KERNEL_HINT = re.compile(r": [0-9A-F]{8}")
KERNEL_TABLE = re.compile(
    r"(?m)(?:^|(?<=[\0\"'])|(?<=\\n))(\s{0,8}\d{1,6}: )([0-9A-F]{8}|[0-9A-F]{32})(:[0-9A-F]{4} )([0-9A-F]{8}|"
    r"[0-9A-F]{32})(:[0-9A-F]{4} )"
)
"""A row of /proc/net/tcp, udp or their 6: addresses in hexadecimal, in the byte order of the machine."""


class Addresses:
    """The mapping of one run; another key gives another one."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._public: dict[int, int] = {}
        self._networks: dict[int, int] = {}
        self._known: dict[tuple[str, str], str | None] = {}

    def _digest(self, *parts: object) -> bytes:
        text = "\0".join(map(str, parts)).encode()
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def other(self, kind: str, text: str) -> str | None:
        """What takes its place; None where that is not needed."""
        if (kind, text) not in self._known:
            make = {"uuid": self.uuid, "mac": self.mac, "ipv6": self.v6, "ipv4": self.v4, "dashed_ipv4": self.dashed}
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[kind, text] = make[kind](text)
        return self._known[kind, text]

    def v4(self, text: str) -> str | None:
        """Another address, perhaps with its prefix length; None for what is not an address or says nothing."""
        address, slash, length = text.partition("/")
        parts = address.split(".")
        if any(len(part) > 3 or int(part) > 255 for part in parts) or (slash and int(length) > 32):
            return None
        number = int.from_bytes(bytes(map(int, parts)), "big")
        if parts[0] in ("0", "127") or int(parts[0]) >= 224 or number == 0:
            return None
        mapped = self._v4_number(number)
        if slash and number & ((1 << (32 - int(length))) - 1) == 0:  # the address of a network
            mapped = mapped >> (32 - int(length)) << (32 - int(length))
        return str(ipaddress.IPv4Address(mapped)) + slash + length

    def dashed(self, text: str) -> str | None:
        sign = "-" if "-" in text else "_"
        mapped = self.v4(text.replace(sign, "."))
        return mapped.replace(".", sign) if mapped else None

    def _v4_number(self, number: int) -> int:
        for network, bits in _PRIVATE:
            if number >> (32 - bits) == network >> (32 - bits):
                return self._flipped(number, 32, range(bits, 32))
        if number >> 28 == 15:
            return number
        index = self._public.setdefault(number >> 8, len(self._public))
        base = _STAND_IN if index < 512 else _RESERVED
        return self._flipped(base + (index << 8) + (number & 255), 32, range(24, 32))

    def _flipped(self, number: int, width: int, bits: Iterable[int]) -> int:
        """Each bit is flipped or not, depending on the bits before it: equal beginnings stay equal."""
        result = number
        for bit in bits:
            prefix = number >> (width - bit)
            if self._digest(width, bit, prefix)[0] & 1:
                result ^= 1 << (width - 1 - bit)
        return result

    def v6(self, text: str) -> str | None:
        address, slash, length = text.partition("/")
        try:
            parsed = ipaddress.IPv6Address(address)
        except ValueError:
            return None
        if parsed.is_unspecified or parsed.is_loopback or parsed.is_multicast or (slash and int(length) > 128):
            return None
        if parsed.ipv4_mapped is not None:
            inner = self.v4(str(parsed.ipv4_mapped))
            return None if inner is None else f"::ffff:{inner}{slash}{length}"
        number = self._v6_number(int(parsed))
        if slash and int(parsed) & ((1 << (128 - int(length))) - 1) == 0:
            number = number >> (128 - int(length)) << (128 - int(length))
        mapped = ipaddress.IPv6Address(number)
        full = address.count(":") == 7 and "::" not in address and len(address) == 39
        return (mapped.exploded if full else str(mapped)) + slash + length

    def _v6_number(self, number: int) -> int:
        network, host = number >> 64, number & ((1 << 64) - 1)
        other = int.from_bytes(self._digest("host", host)[:8], "big") if host else 0
        if number >> 118 == 0xFE80 >> 6:  # link-local: the network is everybody's
            return network << 64 | other
        index = self._networks.setdefault(network, len(self._networks) + 1)
        # ULA stays ULA; all others become the prefix of documentation (RFC 3849).
        base = 0xFD00 << 112 if number >> 121 == 0xFC >> 1 else 0x20010DB8 << 96
        return base | index << 64 | other

    def mac(self, text: str) -> str | None:
        sign = "." if "." in text else "-" if "-" in text else ":"
        digits = text.replace(sign, "")
        if len(set(digits)) == 1:  # all zeros, all ones
            return None
        raw = bytes.fromhex(digits.lower())
        other = b"\x02" + (self._digest("mac", digits.lower()) * 2)[: len(raw) - 1]
        step = 4 if sign == "." else 2
        shown = other.hex() if digits == digits.lower() else other.hex().upper()
        return sign.join(shown[at : at + step] for at in range(0, len(shown), step))

    def uuid(self, text: str) -> str | None:
        digits = text.replace("-", "").lower()
        if len(set(digits)) == 1:
            return None
        other = self._digest("uuid", digits)[:16].hex()
        shown = f"{other[:8]}-{other[8:12]}-4{other[13:16]}-a{other[17:20]}-{other[20:]}"
        return shown if text == text.lower() else shown.upper()

    def kernel_hex(self, text: str) -> str:
        """An address as /proc/net/tcp writes it."""
        raw = bytes.fromhex(text)
        words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]
        if len(words) == 1:
            mapped = self.v4(str(ipaddress.IPv4Address(words[0])))
            packed = ipaddress.IPv4Address(mapped).packed if mapped else words[0]
        else:
            joined = b"".join(words)
            mapped = self.v6(str(ipaddress.IPv6Address(joined)))
            packed = ipaddress.IPv6Address(mapped).packed if mapped else joined
        return b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4)).hex().upper()
