"""What the kernel log of this boot says of hardware: Xids, PCIe errors, links, memory, disks."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Missing, Place
from whichrank.model.contracts import Item

NAME = "kernel_log"
LIMIT_S = 12.0
BACK_S = 24 * 3600.0
"""An older event says little about the next job: what it left behind shows in the state of the GPU."""
_MOST = 200


def measure(place: Place) -> dict[str, Any]:
    """`events` of the last day: kind, code, device, host, words, age_s."""
    if place.live:
        from whichrank.evidence.collectors import kernel_log

        said, why = kernel_log.since(time.time() - BACK_S)
    else:
        said, why = place.output(["dmesg"], 1.0)
    if why:
        raise Missing(f"the kernel log can't be read: {why}")
    return {"events": _events(said), "source": "kernel log"}


def _events(said: bytes) -> list[dict[str, Any]]:
    from whichrank.evidence.readers import kernel_log
    from whichrank.records.hardware import KernelEvent

    with tempfile.NamedTemporaryFile() as file:
        file.write(said)
        file.flush()
        reading = kernel_log.read(Item(Path(file.name), "kernel log", len(said), 0))
    events = [event for event in reading.records if isinstance(event, KernelEvent)]
    return [
        {
            "kind": event.kind, "code": event.code, "device": event.device, "process": event.process,
            "severity": event.text("severity"), "fatal": event.number("fatal"), "words": event.ref.quote[:300],
            "caused_by": event.number("caused_by"),
            "age_s": None if event.age_ns is None else round(event.age_ns / 1e9),
        }
        for event in events[-_MOST:]
    ]  # fmt: skip
