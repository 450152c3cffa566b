"""The settings for a purpose: what this torch, this NCCL and this fabric really read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import cast

from msgspec import Struct

from whichrank.facts.variables.environment import version
from whichrank.facts.variables.purposes import ASSUMED_TORCH, recommended, without_those_set
from whichrank.model.errors import UsageError
from whichrank.model.settings import Fabric, Purpose, Setting

DEFAULT_OUT = f"/tmp/whichrank-{os.getuid()}"  # noqa: S108 - a place that exists on every host, of this user alone
_NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_NOT_A_NETWORK = (
    "lo",
    "docker",
    "virbr",
    "veth",
    "cni",
    "flannel",
    "cali",
    "br-",
    "tun",
    "tap",
    "sit",
    "ip6tnl",
)


class Environment(Struct, frozen=True):
    """Settings, and for what they were chosen."""

    purpose: Purpose
    out: str
    torch: str | None
    nccl: str | None
    fabric: Fabric | None
    settings: tuple[Setting, ...]
    kept: tuple[str, ...]
    """Names that the user has set already; they are not among the settings."""


def environment(
    purpose: Purpose,
    *,
    out: str = DEFAULT_OUT,
    torch: str | None = None,
    nccl: str | None = None,
    fabric: Fabric | None = None,
    environ: Mapping[str, str] | None = None,
) -> Environment:
    """Choose the settings; what is not said is found out from this installation and this host."""
    for name, given in (("--torch", torch), ("--nccl", nccl)):
        if given is not None and len(version(given)) < 2:
            raise UsageError(f"{name} {given} is not a version", "Write it as 2.13 or 2.13.0.")
    found_torch, found_nccl = installed()
    # The installed NCCL belongs to the installed torch: it says nothing about another one.
    nccl = nccl or (found_nccl if torch is None else None)
    torch = torch or found_torch
    fabric = fabric or host_fabric()
    everything = recommended(purpose, out=out, torch=torch, nccl=nccl, fabric=fabric)
    settings, kept = without_those_set(everything, os.environ if environ is None else environ)
    return Environment(purpose, out, torch, nccl, fabric, tuple(settings), tuple(kept))


def assumed(chosen: Environment) -> str:
    """What had to be assumed, in a sentence; empty where nothing had to be."""
    return "" if chosen.torch else f"torch is not installed here: these are the settings for {ASSUMED_TORCH}"


def installed() -> tuple[str | None, str | None]:
    """Versions of torch and of the NCCL that belongs to it, without importing either."""
    torch = _version_of("torch")
    nccl = next((found for name in _NCCL_PACKAGES if (found := _version_of(name))), None)
    return torch, nccl


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def host_fabric(root: Path = Path("/sys/class")) -> Fabric | None:
    """What connects this host to others, by its devices; None where nothing is there to tell."""
    kinds = {kind for device in _entries(root / "infiniband") if (kind := _rdma_kind(device))}
    for fabric in ("efa", "infiniband", "roce"):
        if fabric in kinds:
            return cast("Fabric", fabric)
    interfaces = [entry.name for entry in _entries(root / "net")]
    if any(not name.startswith(_NOT_A_NETWORK) for name in interfaces):
        return "ethernet"
    return "nvlink" if interfaces else None


def _rdma_kind(device: Path) -> str:
    try:
        driver = (device / "device" / "driver").resolve().name
        layers = [(port / "link_layer").read_text().strip() for port in _entries(device / "ports")]
    except OSError:
        return ""
    if driver == "efa":
        return "efa"
    return {"InfiniBand": "infiniband", "Ethernet": "roce"}.get(layers[0] if layers else "", "")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
