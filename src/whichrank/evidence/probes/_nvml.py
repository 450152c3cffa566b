"""What NVML knows beyond nvidia-smi's report, field by field: a field that a driver lacks costs only itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (nvidia-ml-py 13)."""
_ACTIONS = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX", "Bus Reset", "System Reboot")
_MOST_LINKS = 18


def refine(gpus: list[dict[str, Any]]) -> str:
    """Put NVML's values over those of the report, GPU by GPU; "" where there is no NVML."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
    except (ImportError, OSError):
        return ""
    except Exception:  # noqa: BLE001 - NVML's own error class is known only where it is installed
        return ""
    for gpu in gpus:
        handle = _quietly(nvml, partial(nvml.nvmlDeviceGetHandleByUUID, str(gpu["uuid"]).encode()))
        if handle is not None:
            _values(nvml, handle, gpu)
    return "NVML"


def _values(nvml: Any, handle: Any, gpu: dict[str, Any]) -> None:
    asked: dict[str, Callable[[], Any]] = {
        "ecc_unc_volatile": lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
        "ecc_unc_aggregate": lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 1),
        "remap_pending": lambda: "Yes" if nvml.nvmlDeviceGetRemappedRows(handle)[2] else "No",
        "remap_failure": lambda: "Yes" if nvml.nvmlDeviceGetRemappedRows(handle)[3] else "No",
        "power_limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "power_default": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
        "pcie_replays": lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle),
        "memory_free": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).free >> 20,
        "numa_node": lambda: nvml.nvmlDeviceGetNumaNodeId(handle),
        "recovery_action": lambda: _action(nvml, handle),
    }
    for key, ask in asked.items():
        value = _quietly(nvml, ask)
        if value is not None:
            gpu["values"][key] = str(value)
    if not gpu["links"]:
        states = [(n, _quietly(nvml, partial(nvml.nvmlDeviceGetNvLinkState, handle, n))) for n in range(_MOST_LINKS)]
        gpu["links"] = [{"link": n, "active": bool(state)} for n, state in states if state is not None]


def _action(nvml: Any, handle: Any) -> str | None:
    value = nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])[0]
    if value.nvmlReturn != 0:
        return None
    number = int(value.value.uiVal)
    return _ACTIONS[number] if number < len(_ACTIONS) else str(number)


def _quietly(nvml: Any, ask: Callable[[], Any]) -> Any:
    """An answer, or None where this driver or GPU has none."""
    try:
        return ask()
    except (nvml.NVMLError, AttributeError, TypeError):
        return None
