"""The GPUs of this host: all values at one moment, and a few of them every now and then."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from whichrank.evidence.collectors.tools import ask

QUERY_S = 5.0
REPORT_S = 5.0
EVERY_S = 30
NOTHING = "there is neither NVML nor nvidia-smi"
_NEW = (
    "index,uuid,pci.bus_id,name,driver_version,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,"
    "enforced.power.limit,power.default_limit,clocks.sm,clocks.max.sm,clocks_event_reasons.active,"
    "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
)
# One field that a driver does not know fails the whole query: older ones call the reasons otherwise.
_QUERIES = (_NEW, _NEW.replace("clocks_event_reasons", "clocks_throttle_reasons"))
_SHORT = {
    "utilization.gpu [%]": "utilization_percent", "memory.used [MiB]": "memory_mib", "temperature.gpu": "temperature_c",
    "power.draw [W]": "power_w",
}  # fmt: skip
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_HARMLESS = 0x1 | 0x2 | 0x10
"""Bits of the mask that mean idle, or clocks that somebody chose."""


def table() -> tuple[bytes, str]:
    """A line per GPU, and why there is none."""
    if find_spec("pynvml") is not None:
        said, why = ask(_nvml(), QUERY_S)
        if said or "no answer" in why:
            return said, why
    program = shutil.which("nvidia-smi")
    if program is None:
        return b"", NOTHING
    why = ""
    for query in _QUERIES:
        said, why = ask([program, f"--query-gpu={query}", "--format=csv"], QUERY_S)
        if said or "no answer" in why:
            break
    return said, why


def report() -> tuple[bytes, str]:
    """All that nvidia-smi says."""
    program = shutil.which("nvidia-smi")
    return ask([program, "-q"], REPORT_S) if program else (b"", "there is no nvidia-smi")


def _nvml(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "whichrank.evidence.collectors.nvml", *arguments]


@dataclass(slots=True)
class Sampler:
    """A child that prints the GPUs every half minute; on a wedged driver it falls silent, and nobody waits for it."""

    child: subprocess.Popen[bytes] | None = None
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Index and UUID -> the values of one GPU that were heard last, until they are taken."""
    _rest: bytes = b""
    _titles: list[str] = field(default_factory=list)

    def start(self) -> None:
        if find_spec("pynvml") is not None:
            command = _nvml(str(EVERY_S))
        elif program := shutil.which("nvidia-smi"):
            command = [program, f"--query-gpu={_QUERIES[0]}", "--format=csv", "-l", str(EVERY_S)]
        else:
            return
        try:
            self.child = subprocess.Popen(  # noqa: S603 - a program found on the path, no shell
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            return
        if self.child.stdout is not None:
            os.set_blocking(self.child.stdout.fileno(), False)

    def take(self) -> dict[str, dict[str, Any]]:
        """What was heard since the last time; empty where that is nothing."""
        if self.child is None or self.child.stdout is None:
            return {}
        try:
            piece = os.read(self.child.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            piece = b""
        except OSError:
            return {}
        *lines, self._rest = (self._rest + piece)[-(1 << 20) :].split(b"\n")
        self.latest = {}
        for line in lines:
            self._hear(line.decode("utf-8", "replace"))
        return self.latest

    def _hear(self, line: str) -> None:
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if "uuid" in cells:
            self._titles = cells
        elif len(cells) == len(self._titles) > 1:
            row = dict(zip(self._titles, cells, strict=True))
            values: dict[str, Any] = {"index": _number(row.get("index"))}
            values.update({short: _number(row.get(title)) for title, short in _SHORT.items()})
            mask = next((row[name] for name in _REASONS if name in row), "")
            values["slowed_by"] = _slowed(mask)
            for key in (row.get("index"), row.get("uuid")):
                if key:
                    self.latest[key] = values

    def stop(self) -> None:
        """Told to end, and left: it may not be able to."""
        if self.child is not None and self.child.poll() is None:
            os.kill(self.child.pid, signal.SIGKILL)


def of_rank(environ: Mapping[str, str], local_rank: int, seen: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The GPU that a local rank means, by what it may see; None where there is none of that number."""
    if local_rank < 0:
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible is not None else []
    if visible is None:
        return seen.get(str(local_rank))
    return seen.get(names[local_rank]) if local_rank < len(names) else None


def _number(text: str | None) -> float | int | None:
    word = (text or "").split(" ")[0]
    try:
        return int(word) if word.isdecimal() else round(float(word), 1)
    except ValueError:
        return None


def _slowed(mask: str) -> str | None:
    """The mask of reasons without those that are harmless, as nvidia-smi writes it; None where none is left."""
    try:
        bits = int(mask, 16) & ~_HARMLESS
    except ValueError:
        return None
    return f"0x{bits:x}" if bits else None
