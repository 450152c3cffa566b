"""Names of nvidia-smi's values, in its text, XML and CSV, of old and new drivers, under one word each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from whichrank.model.evidence import Ref
from whichrank.records.hardware import UNREADABLE, GpuState, NvLink

# Paths as the text and the XML have them, in lower case, "_" as " "; only what tells the meaning.
_PATHS = {
    "product name": "name", "serial number": "serial", "serial": "serial",
    "performance state": "pstate", "persistence mode": "persistence",
    "mig mode/current": "mig", "mig mode/current mig": "mig",
    "temperature/gpu current temp": "temperature", "temperature/gpu temp": "temperature",
    "temperature/gpu t.limit temp": "temperature_margin", "temperature/gpu temp tlimit": "temperature_margin",
    "temperature/gpu slowdown temp": "temperature_slowdown",
    "temperature/gpu temp slow threshold": "temperature_slowdown",
    "power readings/power draw": "power_draw", "gpu power readings/power draw": "power_draw",
    "gpu power readings/average power draw": "power_draw",
    "gpu power readings/instantaneous power draw": "power_draw", "gpu power readings/instant power draw": "power_draw",
    "power readings/enforced power limit": "power_limit", "gpu power readings/enforced power limit": "power_limit",
    "gpu power readings/current power limit": "power_limit", "power readings/power limit": "power_limit",
    "power readings/default power limit": "power_default", "gpu power readings/default power limit": "power_default",
    "clocks/sm": "sm_clock", "clocks/sm clock": "sm_clock",
    "max clocks/sm": "sm_clock_max", "max clocks/sm clock": "sm_clock_max",
    "utilization/gpu": "utilization", "utilization/gpu util": "utilization",
    "fb memory usage/used": "memory_used", "fb memory usage/total": "memory_total",
    "fb memory usage/free": "memory_free",
    "pci/gpu link info/pcie generation/max": "pcie_gen_max", "pci/gpu link info/pcie generation/current": "pcie_gen",
    "pci/gpu link info/link width/max": "pcie_width_max", "pci/gpu link info/link width/current": "pcie_width",
    "pci/pci gpu link info/pcie gen/max link gen": "pcie_gen_max",
    "pci/pci gpu link info/pcie gen/current link gen": "pcie_gen",
    "pci/pci gpu link info/link widths/max link width": "pcie_width_max",
    "pci/pci gpu link info/link widths/current link width": "pcie_width",
    "pci/replays since reset": "pcie_replays", "pci/replay counter": "pcie_replays",
    "ecc mode/current": "ecc_mode", "ecc mode/current ecc": "ecc_mode",
    "ecc errors/aggregate/sram threshold exceeded": "sram_threshold",
    "remapped rows/pending": "remap_pending", "remapped rows/remapped row pending": "remap_pending",
    "remapped rows/remapping failure occurred": "remap_failure", "remapped rows/remapped row failure": "remap_failure",
    "remapped rows/uncorrectable error": "remap_unc", "remapped rows/remapped row unc": "remap_unc",
    "remapped rows/correctable error": "remap_cor", "remapped rows/remapped row corr": "remap_cor",
    "retired pages/double bit ecc": "retired_dbe", "retired pages/double bit retirement/retired count": "retired_dbe",
    "retired pages/pending page blacklist": "retired_pending", "retired pages/pending retirement": "retired_pending",
    "fabric/state": "fabric_state", "fabric/status": "fabric_status", "fabric/health/summary": "fabric_health",
    "gpu recovery action": "recovery_action", "gpu reset status/reset required": "reset_required",
    "gpu reset status/drain and reset recommended": "drain_recommended",
}  # fmt: skip
_REASONS = {
    "idle": "reason_idle", "gpu idle": "reason_idle", "sw power cap": "reason_power_cap",
    "hw slowdown": "reason_hw_slowdown", "hw thermal slowdown": "reason_hw_thermal",
    "hw power brake slowdown": "reason_power_brake", "sw thermal slowdown": "reason_sw_thermal",
}  # fmt: skip
_SLOWED = {
    "sw thermal slowdown": "slowed_sw_thermal", "hw thermal slowdown": "slowed_hw_thermal",
    "hw power braking": "slowed_power_brake", "sw therm slowdown": "slowed_sw_thermal",
    "hw therm slowdown": "slowed_hw_thermal", "hw power brake slowdown": "slowed_power_brake",
    "hw power brake": "slowed_power_brake", "hw thermal slow": "slowed_hw_thermal",
}  # fmt: skip
COLUMNS = {
    "name": "name", "serial": "serial", "pstate": "pstate", "persistence_mode": "persistence",
    "mig.mode.current": "mig", "temperature.gpu": "temperature", "temperature.gpu.tlimit": "temperature_margin",
    "power.draw": "power_draw", "power.draw.average": "power_draw", "power.draw.instant": "power_draw",
    "enforced.power.limit": "power_limit", "power.limit": "power_limit", "power.default_limit": "power_default",
    "clocks.sm": "sm_clock", "clocks.current.sm": "sm_clock", "clocks.max.sm": "sm_clock_max",
    "utilization.gpu": "utilization", "memory.used": "memory_used", "memory.total": "memory_total",
    "memory.free": "memory_free",
    "pcie.link.gen.current": "pcie_gen", "pcie.link.gen.gpucurrent": "pcie_gen", "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.width.current": "pcie_width", "pcie.link.width.max": "pcie_width_max",
    "ecc.mode.current": "ecc_mode",
    "ecc.errors.uncorrected.volatile.total": "ecc_unc_volatile",
    "ecc.errors.uncorrected.aggregate.total": "ecc_unc_aggregate",
    "ecc.errors.corrected.volatile.total": "ecc_cor_volatile",
    "ecc.errors.corrected.aggregate.total": "ecc_cor_aggregate",
    "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded": "sram_threshold",
    "remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failure",
    "remapped_rows.uncorrectable": "remap_unc", "remapped_rows.correctable": "remap_cor",
    "retired_pages.double_bit.count": "retired_dbe", "retired_pages.pending": "retired_pending",
    "clocks_event_reasons.active": "reasons",
    "clocks_event_reasons.gpu_idle": "reason_idle", "clocks_event_reasons.sw_power_cap": "reason_power_cap",
    "clocks_event_reasons.hw_slowdown": "reason_hw_slowdown",
    "clocks_event_reasons.hw_thermal_slowdown": "reason_hw_thermal",
    "clocks_event_reasons.hw_power_brake_slowdown": "reason_power_brake",
    "clocks_event_reasons.sw_thermal_slowdown": "reason_sw_thermal",
    "fabric.state": "fabric_state", "fabric.status": "fabric_status", "fabric.health.summary": "fabric_health",
    "gpu_recovery_action": "recovery_action",
}  # fmt: skip
"""Columns of `--query-gpu`; the older `clocks_throttle_reasons.*` mean the same as `clocks_event_reasons.*`."""

# Bits of the mask (nvidia-ml-py: nvmlClocksEventReason*).
_BITS = {
    0x1: "reason_idle", 0x4: "reason_power_cap", 0x8: "reason_hw_slowdown", 0x20: "reason_sw_thermal",
    0x40: "reason_hw_thermal", 0x80: "reason_power_brake",
}  # fmt: skip
_ABSENT = (
    "n/a",
    "[n/a]",
    "not supported",
    "[not supported]",
    "none",
    "",
    "requested functionality has been deprecated",
)
_UNIT = re.compile(r"^(-?\d+(?:\.\d+)?) ?(?:C|W|MHz|Mhz|MiB|GiB|%|us|ms|x|GB/s|KB/s|bank\(s\))?$")


class Draft(Struct):
    """A GPU while its values come in."""

    host: str | None = None
    index: int | None = None
    uuid: str | None = None
    bus_id: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    links: dict[int, NvLink] = field(default_factory=dict)
    trouble: str = ""
    line: int = 0
    quote: str = ""

    def put(self, key: str, value: str) -> None:
        """A value under its key: without its unit, or as what could not be read, or not at all."""
        word = value.strip()
        lower = word.lower().strip("[]")
        if lower in UNREADABLE:
            self.unread[key] = word[:80]
        elif word.lower() == "none" and key == "recovery_action":
            self.values[key] = "None"
        elif lower not in _ABSENT and word.lower() not in _ABSENT:
            match = _UNIT.match(word)
            self.values[key] = match[1] if match else word[:120]

    def put_path(self, path: tuple[str, ...], value: str) -> None:
        """A value of the text or the XML, by the names it stands under."""
        leaf = path[-1]
        if leaf in ("gpu uuid", "uuid"):
            self.uuid = value.strip()[:64] or None
        elif len(path) == 1 and leaf == "minor number" and value.strip().isdecimal():
            self.index = int(value.strip()[:6])
        elif path[0] in ("ecc errors", "ecc errors ") and len(path) > 2:
            self._put_ecc(path, value)
        elif path[0].endswith("reasons counters"):
            key = _SLOWED.get(_plain(leaf))
            if key:
                self.put(key, value)
        elif path[0].endswith(("event reasons", "throttle reasons")):
            key = _REASONS.get(_plain(leaf))
            if key:
                self.put(key, value)
        elif (key := _PATHS.get("/".join(path))) and key not in self.values:
            self.put(key, value)

    def _put_ecc(self, path: tuple[str, ...], value: str) -> None:
        """Sums of what the driver splits by unit; older drivers write a total."""
        scope = path[1] if path[1] in ("volatile", "aggregate") else ""
        leaf = path[-1]
        if leaf == "sram threshold exceeded":
            self.put("sram_threshold", value)
        if not scope:
            return
        if "uncorrectable" in leaf or (leaf == "total" and "double bit" in path):
            key = f"ecc_unc_{scope}"
        elif "correctable" in leaf or (leaf == "total" and "single bit" in path):
            key = f"ecc_cor_{scope}"
        else:
            return
        word = value.strip()
        if word.isdecimal():
            self.sums[key] = self.sums.get(key, 0) + int(word[:18])
        elif word.lower().strip("[]") in UNREADABLE:
            self.unread[key] = word[:80]

    def state(self, source: str, host: str | None, taken_ns: int | None, driver: str, cuda: str) -> GpuState:
        for key, total in self.sums.items():
            self.values.setdefault(key, str(total))
        self._spread_mask()
        locator = f"line {self.line}" if self.line else "whole file"
        host = self.host or host
        quote = (self.quote or self._described())[:400]
        return GpuState(
            Ref(source, locator, quote, None, host, None), host, taken_ns, self.index, self.uuid, self.bus_id, driver,
            cuda, dict(self.values), dict(self.unread), tuple(self.links[n] for n in sorted(self.links)),
            tuple(self.pids[:256]), self.trouble, self.line,
        )  # fmt: skip

    def _spread_mask(self) -> None:
        try:
            mask = int(self.values.get("reasons", ""), 16)
        except ValueError:
            return
        for bit, key in _BITS.items():
            self.values.setdefault(key, "Active" if mask & bit else "Not Active")

    def _described(self) -> str:
        name = self.values.get("name", "GPU")
        return f"{name} {self.bus_id or self.uuid or self.index if self.index is not None else ''}".strip()


def _plain(leaf: str) -> str:
    for word in ("clocks event reason ", "clocks throttle reason ", "clocks event reasons counters ", "counter "):
        leaf = leaf.removeprefix(word)
    return leaf


def column(title: str) -> str:
    """A column's title as asked for: without its unit, in the newer spelling."""
    plain = title.strip().lower().partition(" [")[0]
    return plain.replace("clocks_throttle_reasons", "clocks_event_reasons").replace(
        "retired_pages.double_bit_ecc", "retired_pages.double_bit"
    )


def finish(drafts: Iterable[Draft]) -> list[Draft]:
    """In the order of their addresses where no index is told: nvidia-smi counts so."""
    told = list(drafts)
    if told and all(d.index is None for d in told) and all(d.bus_id for d in told):
        for number, draft in enumerate(sorted(told, key=lambda d: d.bus_id or "")):
            draft.index = number
    return told
