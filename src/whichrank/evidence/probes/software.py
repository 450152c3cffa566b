"""Versions: kernel, driver, Python, torch, CUDA, and every NCCL library that could be loaded."""

from __future__ import annotations

import mmap
import os
import platform
import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Place

NAME = "software"
LIMIT_S = 10.0
_PACKAGES = (
    "torch", "numpy", "triton", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "deepspeed", "accelerate",
    "transformers", "flash-attn", "transformer-engine",
)  # fmt: skip
_NCCL = re.compile(rb"NCCL version (\d{1,2}\.\d{1,3}\.\d{1,3})")
_LINKED = re.compile(r"^[ \t]{0,40}(?:libnccl\.so\S* => (/\S+)|(/\S*libnccl\.so\S*)) \(0x", re.MULTILINE)
_DRIVER = re.compile(r"\s(\d{3}\.\d{2,3}(?:\.\d{2})?)\s")
_ENVIRONMENT = re.compile(r"^(?:NCCL_|TORCH_NCCL_|GLOO_|UCX_|FI_|CUDA_|OMP_NUM_THREADS|TORCH_DISTRIBUTED_)")


def measure(place: Place) -> dict[str, Any]:
    """`versions` by name, `nccl` libraries with path and version, and the settings that ranks here would get."""
    driver = _DRIVER.search(place.read("/proc/driver/nvidia/version") or "")
    versions = {"kernel": place.read("/proc/sys/kernel/osrelease"), "driver": driver[1] if driver else None}
    found: dict[str, Any] = {
        "versions": versions,
        "environment": {k: v[:300] for k, v in sorted(place.environ.items()) if _ENVIRONMENT.match(k)},
        "nccl": [],
    }
    if place.live:
        versions |= {"python": platform.python_version(), **_packages()}
        found["nccl"] = _with_loaded(place, _libraries(place))
    return found


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _with_loaded(place: Place, libraries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The one that torch really gets comes first, marked `loaded`: the dynamic linker says which, nothing is run."""
    torch = next((file for file in _of_package("torch", "libtorch_cuda.so")), None)
    if torch is None:
        return libraries
    said, _ = place.output(["ldd", str(torch)], 5.0)
    match = _LINKED.search(said.decode("utf-8", "replace"))
    real = os.path.realpath(match[1] or match[2]) if match else None
    if real is None or not Path(real).is_file():
        # Not linked: built into torch. Not found: torch loads the one of its package by itself.
        inside = None if b"libnccl" in said or not said else _version(torch)
        return [{"path": str(torch), "origin": "torch", "version": inside, "loaded": True}] if inside else libraries
    known = next((library for library in libraries if library["path"] == real), None)
    first = known or {"path": real, "origin": "linker", "version": _version(Path(real))}
    return [{**first, "loaded": True}, *(library for library in libraries if library is not known)]


def _libraries(place: Place) -> list[dict[str, Any]]:
    """In the order in which a loader would meet them: LD_PRELOAD, torch's own, LD_LIBRARY_PATH, the system's."""
    preloaded = re.split(r"[: ]", place.environ.get("LD_PRELOAD", ""))
    candidates = [("LD_PRELOAD", Path(name)) for name in preloaded if "libnccl.so" in name]
    for package in ("nvidia.nccl", "torch"):
        candidates += [("torch", file) for file in _of_package(package)]
    for folder in place.environ.get("LD_LIBRARY_PATH", "").split(":"):
        candidates += [("LD_LIBRARY_PATH", file) for file in sorted(Path(folder).glob("libnccl.so*"))] if folder else []
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"):
        candidates += [("system", file) for file in sorted(Path(folder).glob("libnccl.so*"))]
    seen: dict[str, dict[str, Any]] = {}
    for origin, file in candidates:
        real = os.path.realpath(file)
        if real not in seen and Path(real).is_file():
            seen[real] = {"path": real, "origin": origin, "version": _version(Path(real))}
    return list(seen.values())


def _of_package(name: str, pattern: str = "libnccl.so*") -> list[Path]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    places = list(spec.submodule_search_locations or []) if spec else []
    return [file for place in places for file in sorted((Path(place) / "lib").glob(pattern))]


def _version(library: Path) -> str | None:
    """The version that the library carries as text; it is not loaded."""
    try:
        with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _NCCL.search(content)
            return found[1].decode() if found else None
    except (OSError, ValueError):
        return None
