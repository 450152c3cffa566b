"""What a rank will take of its GPU besides the training itself: context, NCCL's buffers, DDP's buckets, FSDP's gathers.

The sizes of NCCL's buffers are those of its source. The context of CUDA differs by driver and GPU: measured where
allowed, else estimated and said so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from msgspec import Struct, field

from whichrank.facts.tables import rows

Strategy = Literal["none", "ddp", "fsdp"]
Transport = Literal["p2p", "net", "socket"]


class Job(Struct, frozen=True):
    """What will be trained, as far as memory for communication depends on it."""

    world_size: int
    ranks_per_host: int = 1
    parameters: int = 0
    """All of the model."""
    parameter_bytes: int = 2
    gradient_bytes: int | None = None
    """None: as the parameters."""
    strategy: Strategy = "none"
    units: int = 1
    """Parts that FSDP wraps, mostly the layers."""
    bucket_mb: float = 25.0
    bucket_view: bool = False
    """gradient_as_bucket_view of DDP."""
    communicators: int = 1
    nvls: bool = False
    gpudirect: bool = True
    """Buffers between hosts lie on the GPU; without it in host memory."""
    settings: Mapping[str, str] = field(default_factory=dict)
    context_bytes: int | None = None
    """Measured; None: estimated."""


class Part(Struct, frozen=True):
    what: str
    octets: int
    how: str


@cache
def _facts() -> dict[str, int]:
    return {row["name"]: int(row["value"]) for row in rows("hardware/nccl_memory.csv")}


def budget(job: Job) -> list[Part]:
    """Bytes of one GPU, part by part."""
    facts = _facts()
    context = job.context_bytes
    parts = [
        Part("CUDA context", context if context is not None else facts["context"],
             "measured" if context is not None else "estimated; --full measures it")
    ]  # fmt: skip
    if job.world_size > 1:
        parts.append(Part("NCCL kernels", facts["kernels"], "loaded with the first communicator; measured on an H200"))
        parts += _nccl(job, facts)
    gradients = job.parameters * (job.gradient_bytes or job.parameter_bytes)
    if job.strategy == "ddp" and gradients:
        octets = 0 if job.bucket_view else gradients
        how = "a second copy of all gradients; gradient_as_bucket_view=True saves it"
        parts.append(Part("DDP buckets", octets, "gradients live in the buckets" if job.bucket_view else how))
    if job.strategy == "fsdp" and job.parameters:
        unit = job.parameters * job.parameter_bytes // max(1, job.units)
        reduced = job.parameters * (job.gradient_bytes or job.parameter_bytes) // max(1, job.units)
        # The peak of the backward pass: while one unit is reduced the next is gathered.
        parts.append(Part("FSDP gathered parameters", 2 * unit, "this unit and the one fetched ahead"))
        # The shards of the last two units are not there yet at the peak.
        gradients = unit + reduced - 2 * reduced // max(2, job.world_size)
        parts.append(Part("FSDP gradients before reduce-scatter", gradients,
                          "of one unit, and the buffer that is reduced"))  # fmt: skip
    return parts


def measured(python: str = sys.executable, limit_s: float = 60.0) -> dict[str, Any]:
    """What a context takes on the GPU of this host, and what is free; empty where that can't be told."""
    command = [python, "-m", "whichrank.worker.gpu_memory"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)  # noqa: S603
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return found


def _nccl(job: Job, facts: Mapping[str, int]) -> list[Part]:
    across = job.world_size > job.ranks_per_host
    transport: Transport = "p2p" if not across else ("net" if job.gpudirect else "socket")
    channels = _channels(job, facts, transport)
    sizes = {
        "simple": _setting(job, "NCCL_BUFFSIZE", facts["simple_buffer"]),
        "ll": _setting(job, "NCCL_LL_BUFFSIZE", facts["ll_buffer"]),
        "ll128": _setting(job, "NCCL_LL128_BUFFSIZE", facts["ll128_buffer"]),
    }
    grain = facts["granularity"]
    receive = _rounded(sum(sizes.values()) + facts["header"], grain)
    send = _rounded(facts["header"], grain)
    # A ring has one neighbour to receive from; a tree one above and on average one below.
    connections = {"Ring": 1, "Tree": 2}.get(job.settings.get("NCCL_ALGO", ""), 1)
    inside = connections * channels * (receive + send)
    parts = []
    if job.ranks_per_host > 1:
        parts.append(Part("NCCL buffers inside the host", job.communicators * inside,
                          f"{channels} channels, {(receive + send) >> 20} MiB each"))  # fmt: skip
    if transport == "net":
        # Between hosts sender and receiver both hold Simple and LL128 on the GPU (net.cc); LL of the sender does not.
        each = _rounded(sizes["simple"] + sizes["ll128"], grain) + _rounded(sum(sizes.values()), grain)
        parts.append(Part("NCCL buffers between hosts", job.communicators * connections * channels * each,
                          f"{channels} channels, {each >> 20} MiB each, GPUDirect RDMA"))  # fmt: skip
    elif transport == "socket":
        octets = channels * facts["socket_channel"] + facts["socket_communicator"]
        parts.append(Part("NCCL connections between hosts", job.communicators * octets,
                          f"{channels} channels; buffers in pinned host memory: no GPUDirect RDMA"))  # fmt: skip
    if job.nvls and job.ranks_per_host > 1:
        chunk = _setting(job, "NCCL_NVLS_CHUNKSIZE", facts["nvls_chunk"])
        count = _setting(job, "NCCL_NVLS_NCHANNELS", facts["nvls_channels"])
        octets = count * 2 * chunk * facts["steps"] * job.ranks_per_host
        parts.append(Part("NVLS buffers", job.communicators * octets, f"{count} channels, {job.ranks_per_host} heads"))
    return parts


def _channels(job: Job, facts: Mapping[str, int], transport: Transport) -> int:
    usual = {"p2p": facts["channels_nvlink"], "net": facts["channels_net"], "socket": facts["channels_socket"]}[
        transport
    ]
    least = max(_setting(job, "NCCL_MIN_CTAS", 0), _setting(job, "NCCL_MIN_NCHANNELS", 0))
    most = min(_setting(job, "NCCL_MAX_CTAS", 64), _setting(job, "NCCL_MAX_NCHANNELS", 64))
    return max(min(usual, most), least)


def _setting(job: Job, name: str, default: int) -> int:
    word = job.settings.get(name, "")
    return int(word) if word.isdigit() else default


def _rounded(octets: int, grain: int) -> int:
    return -(-octets // grain) * grain


def parameters(text: str) -> int:
    """`7B`, `350M` or a number; ValueError where it is none."""
    unit = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper())
    count = float(text[:-1]) * unit if unit else float(text)
    if not 1 <= count < 1e15:  # neither nan nor infinite
        raise ValueError(text)
    return int(count)
