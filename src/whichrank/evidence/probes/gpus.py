"""The GPUs: by NVML where its Python binding is installed, else by nvidia-smi's XML; and those that PCI knows of."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors.tools import NO_ANSWER
from whichrank.evidence.probes import Absent, Missing, Place
from whichrank.model.contracts import Item

NAME = "gpus"
LIMIT_S = 20.0
_ASK_S = 5.0
WINDOW_S = 1.0
"""Between the two looks at NVLink's error counters."""
_COMMANDS = {
    "report": ["nvidia-smi", "-q", "-x"],
    "links": ["nvidia-smi", "nvlink", "-s"],
    "link_errors": ["nvidia-smi", "nvlink", "-e"],
}
_NVIDIA, _GPU_CLASSES = "0x10de", ("0x0302", "0x0300")


def measure(place: Place) -> dict[str, Any]:
    """`gpus` with values by `records.hardware.GPU_KEYS`, `pci` with the addresses that the bus has, `visible`."""
    bus = _on_the_bus(place)
    said, why = place.output(_COMMANDS["report"], _ASK_S)
    gpus, remark = _reading(said) if said else ([], "")
    if not gpus and not why and bus:
        why = f"nvidia-smi: {remark.removeprefix('nvidia-smi said: ') or 'it named no GPU'}"
    # A program that is there and does not answer is trouble; one that is not there is none.
    if not gpus and why and (bus or _has_driver(place) or NO_ANSWER in why):
        return {"gpus": [], "pci": bus, "trouble": why, "visible": _visible(place)}
    if not gpus and not bus:
        raise Absent("no NVIDIA GPU")
    links_why = _add_links(place, gpus)
    if not links_why:
        _add_growth(place, gpus)
    source = "nvidia-smi -q -x"
    if place.live:
        from whichrank.evidence.probes import _nvml

        source = _nvml.refine(gpus) or source
    return {"gpus": gpus, "pci": bus, "trouble": "", "visible": _visible(place), "source": source,
            "cut": "is cut" in remark, "links_why": links_why}  # fmt: skip


def _read(said: bytes) -> list[dict[str, Any]]:
    return _reading(said)[0]


def _reading(said: bytes) -> tuple[list[dict[str, Any]], str]:
    """The GPUs, and what the reader remarks."""
    from whichrank.evidence.readers import nvidia_smi
    from whichrank.model.errors import UnreadableError
    from whichrank.records.hardware import GpuState

    with tempfile.NamedTemporaryFile() as file:
        file.write(said)
        file.flush()
        try:
            reading = nvidia_smi.read(Item(Path(file.name), "nvidia-smi", len(said), 0))
        except UnreadableError as error:
            raise Missing(f"nvidia-smi: {error.message}") from error
    found = [
        {
            "index": state.index, "uuid": state.uuid, "bus_id": (state.bus_id or "").lower(), "driver": state.driver,
            "cuda": state.cuda, "values": dict(state.values), "unread": dict(state.unread), "pids": list(state.pids),
            "trouble": state.trouble,
            "links": [{"link": n.link, "rate": n.rate, "active": n.active, **n.counters} for n in state.links],
        }
        for state in reading.records if isinstance(state, GpuState)
    ]  # fmt: skip
    return found, reading.note


def _add_links(place: Place, gpus: list[dict[str, Any]]) -> str:
    """NVLink states and error counters, which the report does not have; why, where the driver does not answer."""
    for command in ("links", "link_errors"):
        said, why = place.output(_COMMANDS[command], _ASK_S)
        if NO_ANSWER in why:
            return f"{' '.join(_COMMANDS[command])}: {NO_ANSWER} {_ASK_S:.0f} s"
        for found in _read(said) if said.strip() else []:
            for gpu in gpus:
                if gpu["uuid"] == found["uuid"]:
                    known = {link["link"]: link for link in gpu["links"]}
                    for link in found["links"]:
                        known.setdefault(link["link"], {"link": link["link"]}).update(
                            {key: value for key, value in link.items() if value is not None}
                        )
                    gpu["links"] = [known[number] for number in sorted(known)]
    return ""


def _add_growth(place: Place, gpus: list[dict[str, Any]]) -> None:
    """What the error counters of NVLink grew by while we looked: old errors are history, new ones are trouble."""
    if not place.live or not any(link for gpu in gpus for link in gpu["links"]):
        return
    time.sleep(WINDOW_S)
    said, _ = place.output(_COMMANDS["link_errors"], _ASK_S)
    later = {(g["uuid"], link["link"]): link for g in (_read(said) if said.strip() else []) for link in g["links"]}
    for gpu in gpus:
        for link in gpu["links"]:
            now = later.get((gpu["uuid"], link["link"]), {})
            grown = {k: v - link[k] for k, v in now.items() if k != "link" and _is_count(v) and _is_count(link.get(k))}
            link["growth"] = {key: value for key, value in grown.items() if value > 0}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _on_the_bus(place: Place) -> list[str]:
    """Addresses of NVIDIA's GPUs, whether the driver knows them or not."""
    found = []
    for device in place.entries("/sys/bus/pci/devices"):
        vendor, kind = (
            place.read(f"/sys/bus/pci/devices/{device.name}/vendor"),
            place.read(f"/sys/bus/pci/devices/{device.name}/class"),
        )
        if vendor == _NVIDIA and (kind or "").startswith(_GPU_CLASSES):
            found.append(device.name)
    return found


def _has_driver(place: Place) -> bool:
    return place.path("/proc/driver/nvidia/version").exists()


def _visible(place: Place) -> str | None:
    return place.environ.get("CUDA_VISIBLE_DEVICES")
