"""What a host says of its hardware: events of the kernel, and the state of GPUs at one moment."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from whichrank.model.evidence import Ref

Value = str | int | float | list[int] | list[str]

KernelKind = Literal[
    "xid", "sxid", "gpu_lost", "gpu_page_fault", "gpu_process", "gpu_init_failed", "gpu_name", "pcie_error",
    "pcie_limited", "oom_kill", "oom_invoked", "segfault", "link_down", "link_up", "nic_fault", "server_silent",
    "server_back", "hung_task", "soft_lockup", "io_error", "cpu_throttled", "machine_check", "boot",
]  # fmt: skip
"""What a line of a kernel log may say."""

KernelKey = Literal[
    "able_gbps", "anon_kb", "caused_by", "code", "corrected", "fatal", "gbps", "library", "link", "mig", "named_by",
    "reason", "scope", "seconds", "server", "severity", "uuid", "what",
]  # fmt: skip
"""The values of kernel events that anything reads."""

KERNEL_KINDS: dict[KernelKind, str] = {
    "xid": "the NVIDIA driver reports an Xid: code, caused_by; device is the GPU",
    "sxid": "an NVSwitch reports an SXid: code, fatal (1, 0), link; device is the switch",
    "gpu_lost": "the GPU does not answer over PCIe any more",
    "gpu_page_fault": "amdgpu: a kernel touched memory that it must not; pid 0 where it was the driver's own",
    "gpu_process": "amdgpu: whose fault the lines above tell of",
    "gpu_init_failed": "the driver could not start the GPU: reason",
    "gpu_name": "the driver tells which UUID a bus address has: uuid",
    "pcie_error": "PCIe error report: severity (corrected, nonfatal, fatal), what",
    "pcie_limited": "a device starts on a slower PCIe link than it could use: gbps, able_gbps, what (the link)",
    "oom_kill": "the kernel killed a process for memory: scope (host, cgroup), anon_kb",
    "oom_invoked": "memory ran out; whom the kernel killed for it is told below",
    "segfault": "a process crashed in native code: what, library",
    "link_down": "a network link went down; device is the interface or adapter",
    "link_up": "a network link came up",
    "nic_fault": "a network adapter reports a fault: what",
    "server_silent": "a file server does not answer: server",
    "server_back": "the file server answers again: server",
    "hung_task": "a task does not leave uninterruptible sleep: seconds",
    "soft_lockup": "a CPU does not schedule any more: seconds",
    "io_error": "a disk or file system failed: what",
    "cpu_throttled": "CPUs are slowed down by heat",
    "machine_check": "the CPU or its memory reports a hardware error: corrected (1, 0)",
    "boot": "the kernel starts: what stands above belongs to an earlier boot",
}
"""Every `KernelEvent.kind`, with the keys of `data`."""


class KernelEvent(Struct, frozen=True):
    """One statement of the kernel log."""

    kind: KernelKind
    ref: Ref
    time_ns: int | None = None
    """The host's wall clock, taken as UTC where the line has no zone; before 1970 where it has no year."""
    uptime_ns: int | None = None
    """Since boot, where the line says so."""
    host: str | None = None
    pid: int | None = None
    process: str = ""
    device: str = ""
    """Bus address of a GPU, name of an interface or an adapter."""
    data: dict[str, Value] = field(default_factory=dict)
    line: int = 0
    age_ns: int | None = None
    """How much older it is than the newest line of its log that has the same clock."""

    def number(self, key: KernelKey) -> int | None:
        value = self.data.get(key)
        return value if isinstance(value, int) else None

    def text(self, key: KernelKey) -> str:
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    @property
    def code(self) -> int | None:
        return self.number("code")


@lru_cache(maxsize=4096)
def address(text: str | None) -> int | None:
    """A PCI address as a number: `0000:17:00.0`, `PCI:0000:17:00`, `00000000:17:00.0`, or NCCL's `17000`."""
    if not text:
        return None
    plain = text.strip().lower().removeprefix("0x").removeprefix("pci:")
    try:
        if ":" not in plain:
            return int(plain, 16)
        place, _, function = plain.partition(" ")[0].partition(".")
        parts = [int(part, 16) for part in place.split(":")]
        domain, bus, device = parts if len(parts) == 3 else (0, *parts)  # lspci leaves out the domain
        last = int(function or "0", 16)
    except ValueError:
        return None
    return (domain << 20) | (bus << 12) | (device << 4) | last


GPU_KEYS = {
    "name": "product name", "serial": "", "pstate": "performance state", "persistence": "", "mig": "mode, Enabled …",
    "temperature": "C", "temperature_margin": "C below the limit", "temperature_slowdown": "C, absolute threshold",
    "power_draw": "W", "power_limit": "W, enforced", "power_default": "W",
    "sm_clock": "MHz", "sm_clock_max": "MHz", "utilization": "%", "memory_used": "MiB", "memory_total": "MiB",
    "memory_free": "MiB",
    "pcie_gen": "", "pcie_gen_max": "", "pcie_width": "lanes", "pcie_width_max": "lanes", "pcie_replays": "since reset",
    "ecc_mode": "", "ecc_unc_volatile": "since the driver was loaded", "ecc_unc_aggregate": "of the board's life",
    "ecc_cor_volatile": "", "ecc_cor_aggregate": "", "sram_threshold": "Yes: replace the board",
    "remap_pending": "", "remap_failure": "", "remap_unc": "", "remap_cor": "",
    "retired_dbe": "", "retired_pending": "",
    "reasons": "bit mask of clock event reasons", "reason_hw_slowdown": "Active …", "reason_hw_thermal": "",
    "reason_sw_thermal": "", "reason_power_brake": "", "reason_power_cap": "", "reason_idle": "",
    "slowed_sw_thermal": "us", "slowed_hw_thermal": "us", "slowed_power_brake": "us",
    "fabric_state": "", "fabric_status": "", "fabric_health": "", "recovery_action": "", "reset_required": "",
}  # fmt: skip
"""Keys of `GpuState.values`, with their units."""

UNREADABLE = ("err!", "unknown error", "gpu is lost", "gpu requires reset", "gpu reset required", "error")
"""Words of nvidia-smi that mean: it could not be read. `N/A` means: this GPU has no such thing."""


class NvLink(Struct, frozen=True):
    """One NVLink of a GPU."""

    link: int
    rate: float | None = None
    """GB/s; none where it was not asked for."""
    active: bool | None = None
    counters: dict[str, int] = field(default_factory=dict)


class GpuState(Struct, frozen=True):
    """What nvidia-smi, or AMD's tools, say of one GPU at one moment."""

    ref: Ref
    host: str | None = None
    taken_ns: int | None = None
    index: int | None = None
    uuid: str | None = None
    bus_id: str | None = None
    driver: str = ""
    cuda: str = ""
    values: dict[str, str] = field(default_factory=dict)
    """By `GPU_KEYS`, without units; what the GPU does not have is not in it."""
    unread: dict[str, str] = field(default_factory=dict)
    """By the same keys: what could not be read, with the word that stood there."""
    links: tuple[NvLink, ...] = ()
    pids: tuple[int, ...] = ()
    trouble: str = ""
    """What nvidia-smi says instead of an answer: `GPU is lost`, `Unknown Error`."""
    line: int = 0
    node: int | None = None
    """Its number in messages of AMD's run time, which counts the CPUs of the host too."""

    def number(self, key: str) -> float | None:
        try:
            return float(self.values[key])
        except (KeyError, ValueError):
            return None

    def is_yes(self, key: str) -> bool:
        """Whether it says so; unread is not yes."""
        return self.values.get(key, "").lower() in ("yes", "active", "1", "true", "pending")


class GpuTopology(Struct, frozen=True):
    """The matrix of `nvidia-smi topo -m`."""

    ref: Ref
    host: str | None = None
    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    """(`GPU0`, `NIC1`) -> `NV18`, `PIX`, `SYS` …"""
    nics: dict[str, str] = field(default_factory=dict)
    """`NIC0` -> `mlx5_0`."""
