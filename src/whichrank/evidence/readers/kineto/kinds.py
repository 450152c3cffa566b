"""What a span is, by its category and its name.

Categories are those of Kineto's ActivityType (libkineto/src/ActivityType.cpp: cpu_op, user_annotation, kernel,
gpu_memcpy, cuda_runtime, …) and its first version's (Operator, Kernel, Memcpy, Runtime). Names of communication kernels
changed with every era of NCCL: ncclAllReduceRingLLKernel_sum_f32 (2.4), ncclKernel_AllReduce_RING_LL_Sum_float (2.13),
ncclDevKernel_AllReduce_Sum_f32_RING_LL (2.19), ncclSymkDevKernel_… (2.27), ncclDevKernel_Generic (RCCL).
"""

from __future__ import annotations

import re
from functools import lru_cache

from whichrank.records.profiles.trace import COMMUNICATION, COMPUTE, MARK, MEMORY, OPERATOR, PYTHON, RUNTIME, SYNC

DEVICE = {
    "kernel": COMPUTE, "gpu_memcpy": MEMORY, "gpu_memset": MEMORY, "memcpy": MEMORY, "memset": MEMORY,
    "concurrent_kernel": COMPUTE, "mtia_ccp_events": COMPUTE, "gpu_user_annotation": MARK, "cuda_sync": SYNC,
    "collective_comm": COMMUNICATION,
}  # fmt: skip
HOST = {
    "cpu_op": OPERATOR, "operator": OPERATOR, "user_annotation": MARK, "annotation": MARK, "python_function": PYTHON,
    "python": PYTHON, "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "runtime": RUNTIME, "hip_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME, "privateuse1_runtime": RUNTIME,
    "privateuse1_driver": RUNTIME, "hpu_runtime": RUNTIME, "overhead": RUNTIME, "rocm_runtime": RUNTIME,
    "cpu_instant_event": OPERATOR,
}  # fmt: skip
IGNORED = {"trace", "ac2g", "fwdbwd", "async", "external_correlation", "cuda_event", "cuda_profiler_range"}

_COMMUNICATES = re.compile(
    r"^(?:void )?(?:nccl|rccl|msccl|hccl|hcom_|oneccl|ccl_)|nccl\w*Kernel|cross_device_reduce|nvshmem|deep_ep::|"
    r"(?:one|two)_shot_all_reduce|multimem_(?:one_shot|all)|all_?reduce_?(?:sum|kernel)|allreduce_fusion|"
    r"^(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)", re.IGNORECASE,
)  # fmt: skip
_MOVES = re.compile(
    r"^(?:Memcpy|Memset|dma|Copy(?:Host|Device)To|CopyBuffer|FillBuffer|__amd_rocclr_(?:copy|fill)Buffer|"
    r"\[CUDA mem(?:cpy|set))", re.IGNORECASE,
)  # fmt: skip
_HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc|hccl_cpu):\w")
_ANNOUNCED = re.compile(r"^(?:nccl|rccl|hccl|xccl|ucc|gloo|mpi|c10d):+\w|^record_param_comms$")


@lru_cache(maxsize=4096)
def communicates(name: str) -> bool:
    """Whether a kernel of this name moves data between devices."""
    return bool(_COMMUNICATES.search(name))


def may_tell(name: str) -> bool:
    """Whether a span of this name may carry a collective's arguments."""
    return bool(_ANNOUNCED.match(name)) or communicates(name)


def device_kind(name: str, kind: int) -> int:
    """The kind of a span on a device: its name may tell more than its category."""
    if kind != COMPUTE:
        return kind
    if name.startswith("triton_"):  # a fused kernel may be named for what it follows
        return COMPUTE
    if communicates(name):
        return COMMUNICATION
    return MEMORY if _MOVES.match(name) else COMPUTE


def host_kind(name: str, kind: int) -> int:
    """The kind of a span on the host: collectives of CPU back ends run there."""
    return COMMUNICATION if kind in (MARK, OPERATOR) and _HOST_COLLECTIVE.match(name) else kind


_DEVICE_PROCESS = re.compile(r"^/device:(?:GPU|TPU)|^Ascend Hardware|^CUDA functions$|\bStream #", re.IGNORECASE)
_DEVICE_THREAD = re.compile(r"stream|XLA Ops", re.IGNORECASE)
_DERIVED_THREAD = re.compile(r"Launch Stats|Name Scope|^Steps|XLA Modules|Framework Ops|Source code", re.IGNORECASE)


def device_lane(process: str, thread: str) -> bool:
    """Whether spans without a category on this lane ran on a device, by the names of its process and thread."""
    if process == "CUDA functions":
        return True
    on_device = bool(_DEVICE_PROCESS.match(process) and _DEVICE_THREAD.search(thread))
    return on_device and not _DERIVED_THREAD.search(thread)


_USEFUL = re.compile(r"launch|memcpy|memset|sync|wait|alloc|free|graph|copy|fill", re.IGNORECASE)


def launches_or_waits(name: str) -> bool:
    """Whether a call of the driver by this name launches work, moves memory, or waits."""
    return bool(_USEFUL.search(name))
