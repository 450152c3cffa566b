"""The ports of RDMA adapters with their counters, as /sys/class/infiniband has them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/class/infiniband")
NOTHING = "there is no RDMA adapter"
_STATE = ("state", "phys_state", "rate", "link_layer")
_MOST_PORTS = 256
_MOST_COUNTERS = 512


def ports(root: Path = ROOT) -> str:
    """A line `path:value` per value, as `grep . /sys/class/infiniband/*/ports/*/…` prints them; "" without adapters."""
    lines: list[str] = []
    for port in _entries(root, "*/ports/*")[:_MOST_PORTS]:
        files = [port / name for name in _STATE]
        files += [*_entries(port, "counters/*"), *_entries(port, "hw_counters/*")][:_MOST_COUNTERS]
        for file in files:
            value = _value(file)
            if value:
                lines.append(f"/sys/class/infiniband/{file.relative_to(root)}:{value}\n")
    return "".join(lines)


def _entries(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _value(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(128).decode("ascii", "replace").strip().partition("\n")[0]
    except OSError:
        return ""
