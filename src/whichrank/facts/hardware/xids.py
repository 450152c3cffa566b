"""What an Xid of the NVIDIA driver, or an SXid of an NVSwitch, means and asks for."""

from __future__ import annotations

from functools import cache
from typing import Literal

from msgspec import Struct

from whichrank.facts.tables import rows

Blame = Literal["memory", "bus", "nvlink", "gpu", "application", "consequence", "nobody"]

ACTIONS = {
    "restart_app": "Restart the job; the GPU itself is usable.",
    "debug_app": "Look for the fault in the program: compute-sanitizer, CUDA_LAUNCH_BLOCKING=1.",
    "reset_gpu": "Reset the GPU (nvidia-smi --gpu-reset -i INDEX, with no process on it) before it is used again.",
    "schedule_reset": "Reset the GPU at the next opportunity, so that the row remap takes effect.",
    "drain_if_repeats": "Drain the node if it happens again.",
    "drain_rma": "Drain the node and have the board replaced.",
    "drain_rma_if_repeats": "If it happens again on the same GPU, have the board replaced.",
    "drain_if_with_63_or_64": "Drain the node if a row remap (Xid 63, 64) comes with it.",
    "rma_if_threshold": "Have the board replaced only if the remap failed or the SRAM threshold is exceeded.",
    "reboot_node": "Drain and reboot the node.",
    "reboot_if_persists": "Reboot the node if the reset does not help.",
    "cold_reboot": "Power-cycle the node.",
    "check_power_thermal": "Check power, cooling and the seating of the board.",
    "check_pcie": "Check the PCIe link: seating, riser, errors in the kernel log.",
    "check_link_seating": "Check the seating of the NVLink bridge, the board and the cables.",
    "check_link": "Check the NVLink connections.",
    "check_cable": "Check the NVLink cable or cartridge.",
    "check_peer": "Look at the peer GPU and the NVSwitch as well: one end's fault is told by both.",
    "check_power_cable": "Connect the board's auxiliary power.",
    "check_cooling": "Check the cooling of the NVSwitch.",
    "update_driver": "Update the driver with its firmware.",
    "decode_then_act": "Read the line's words: Fatal asks for a GPU reset, Nonfatal for watching.",
    "reset_gpus_on_port_or_reboot": "Reset the GPUs on that port, or reboot the node.",
    "reboot_node_or_reset_all_gpus_and_switches": "Reset all GPUs and switches of the node, or reboot it.",
    "reset_all_gpus_and_switches": "Reset all GPUs and switches of the node.",
    "inspect_if_repeats": "Have the hardware inspected if it happens again.",
    "inspect": "Have the hardware inspected.",
    "enable_ecc": "Switch ECC on (nvidia-smi -e 1).",
    "reboot": "Reboot the node.",
    "follow_48": "Reset the GPU before it is used again, so that the row remap takes effect.",
    "rma_if_sram_threshold": "Have the board replaced if the SRAM threshold is exceeded.",
    "check_fabric_partition": "Check the partitions that the fabric manager has set up.",
    "restart_vm_or_reboot": "Restart the virtual machine, or reboot the node.",
}
"""Sentences for the words of the column `action`; words without one are left out."""

_BLAMES: dict[str, Blame] = {
    "memory": "memory", "nvlink": "nvlink", "nvswitch": "nvlink", "user_app": "application",
    "consequence": "consequence", "hardware": "gpu", "gsp": "gpu", "driver": "gpu", "pcie": "gpu",
    "thermal_power": "gpu",
}  # fmt: skip
_OFF_THE_BUS = (79, 167)
"""The GPU does not answer over PCIe any more."""
_RESET = 43
"""A channel was stopped for the program's own fault; after another Xid it only follows from that."""


class Xid(Struct, frozen=True):
    """One row of the table."""

    kind: str
    code: int
    name: str
    meaning: str
    severity: str
    category: str
    action: tuple[str, ...]
    kills_job: str
    source: str
    note: str

    @property
    def blame(self) -> Blame:
        """What this one speaks of; nobody where it harms no job."""
        if self.kind == "xid" and self.code in _OFF_THE_BUS:
            return "bus"
        if self.category == "consequence" or (self.kind == "xid" and self.code == _RESET):
            return _BLAMES[self.category]
        if self.severity in ("info", "warn") or self.kills_job in ("no", "unknown", "process_only"):
            return "nobody"
        return _BLAMES.get(self.category, "nobody")

    @property
    def fix(self) -> tuple[str, ...]:
        """What to do, in sentences."""
        return tuple(ACTIONS[word] for word in self.action if word in ACTIONS)


def is_nvlink(code: int) -> bool:
    """Whether an Xid of this number speaks of an NVLink."""
    fact = xid(code)
    return fact is not None and fact.category == "nvlink"


@cache
def _table() -> dict[tuple[str, int], Xid]:
    return {(row["kind"], int(row["code"])): _row(row) for row in rows("hardware/xid.csv")}


def _row(row: dict[str, str]) -> Xid:
    return Xid(
        kind=row["kind"],
        code=int(row["code"]),
        name=row["name"],
        meaning=row["meaning"],
        severity=row["severity"],
        category=row["category"],
        action=tuple(row["action"].split(";")),
        kills_job=row["kills_job"],
        source=row["source"],
        note=row["note"],
    )


def xid(code: int) -> Xid | None:
    """The Xid of this number, if it is known."""
    return _table().get(("xid", code))


def sxid(code: int) -> Xid | None:
    """The SXid of this number, if it is known."""
    return _table().get(("sxid", code))


def all_xids() -> tuple[Xid, ...]:
    """Every row, Xids first."""
    return tuple(_table().values())
