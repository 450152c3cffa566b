"""The GPUs: by NVML where its Python binding is installed, else by nvidia-smi's XML; and those that PCI knows of."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors.tools import NO_ANSWER
from whichrank.evidence.probes import Absent, Missing, Place
from whichrank.model.contracts import Item

NAME = "gpus"
LIMIT_S = 12.0
_ASK_S = 5.0
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
    gpus = _read(said) if said else []
    # A program that is there and does not answer is trouble; one that is not there is none.
    if not gpus and why and (bus or _has_driver(place) or NO_ANSWER in why):
        return {"gpus": [], "pci": bus, "trouble": why, "visible": _visible(place)}
    if not gpus and not bus:
        raise Absent("no NVIDIA GPU")
    _add_links(place, gpus)
    source = "nvidia-smi -q -x"
    if place.live:
        from whichrank.evidence.probes import _nvml

        source = _nvml.refine(gpus) or source
    return {"gpus": gpus, "pci": bus, "trouble": "", "visible": _visible(place), "source": source}


def _read(said: bytes) -> list[dict[str, Any]]:
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
    return [
        {
            "index": state.index, "uuid": state.uuid, "bus_id": (state.bus_id or "").lower(), "driver": state.driver,
            "cuda": state.cuda, "values": dict(state.values), "unread": dict(state.unread), "pids": list(state.pids),
            "trouble": state.trouble,
            "links": [{"link": n.link, "rate": n.rate, "active": n.active, **n.counters} for n in state.links],
        }
        for state in reading.records if isinstance(state, GpuState)
    ]  # fmt: skip


def _add_links(place: Place, gpus: list[dict[str, Any]]) -> None:
    """NVLink states and error counters, which the report does not have."""
    for command in ("links", "link_errors"):
        said, _ = place.output(_COMMANDS[command], _ASK_S)
        for found in _read(said) if said.strip() else []:
            for gpu in gpus:
                if gpu["uuid"] == found["uuid"]:
                    known = {link["link"]: link for link in gpu["links"]}
                    for link in found["links"]:
                        known.setdefault(link["link"], {"link": link["link"]}).update(
                            {key: value for key, value in link.items() if value is not None}
                        )
                    gpu["links"] = [known[number] for number in sorted(known)]


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
