"""The GPUs of this host by NVML, as `nvidia-smi --query-gpu` would print them.

A program of its own (`python -m whichrank.evidence.collectors.nvml [SECONDS]`): a driver that is wedged blocks for
ever, and then it is the program that is abandoned. With a number it goes on printing, once in so many seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

NO_LIBRARY = 3
"""Exit code where nvidia-ml-py or the driver's library is missing."""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _columns(nvml: Any) -> dict[str, Callable[[Any], Any]]:
    """Title of a column -> how its value is asked for."""
    uncorrected, corrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return {
        "index": nvml.nvmlDeviceGetIndex,
        "uuid": nvml.nvmlDeviceGetUUID,
        "pci.bus_id": lambda gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId,
        "name": nvml.nvmlDeviceGetName,
        "driver_version": lambda _gpu: nvml.nvmlSystemGetDriverVersion(),
        "utilization.gpu [%]": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "memory.used [MiB]": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used >> 20,
        "memory.total [MiB]": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total >> 20,
        "temperature.gpu": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "power.draw [W]": lambda gpu: f"{nvml.nvmlDeviceGetPowerUsage(gpu) / 1000:.2f}",
        "enforced.power.limit [W]": lambda gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.2f}",
        "power.default_limit [W]": lambda gpu: f"{nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000:.2f}",
        "clocks.current.sm [MHz]": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "clocks.max.sm [MHz]": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "clocks_event_reasons.active": lambda gpu: f"0x{reasons(gpu):016x}",
        "ecc.errors.corrected.volatile.total": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, corrected, 0),
        "ecc.errors.uncorrected.volatile.total": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, 0),
        "ecc.errors.uncorrected.aggregate.total": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, 1),
        "remapped_rows.uncorrectable": lambda gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[1],
        "remapped_rows.pending": lambda gpu: "Yes" if nvml.nvmlDeviceGetRemappedRows(gpu)[2] else "No",
        "remapped_rows.failure": lambda gpu: "Yes" if nvml.nvmlDeviceGetRemappedRows(gpu)[3] else "No",
        "pcie.link.gen.current": nvml.nvmlDeviceGetCurrPcieLinkGeneration,
        "pcie.link.gen.max": nvml.nvmlDeviceGetMaxPcieLinkGeneration,
        "pcie.link.width.current": nvml.nvmlDeviceGetCurrPcieLinkWidth,
        "pcie.link.width.max": nvml.nvmlDeviceGetMaxPcieLinkWidth,
    }


def rows(nvml: Any, columns: dict[str, Callable[[Any], Any]]) -> Iterator[str]:
    """A line per GPU; what a GPU does not have is N/A, what can't be read is told in the words of nvidia-smi."""
    for index in range(nvml.nvmlDeviceGetCount()):
        values = []
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            yield f"Unable to determine the device handle for GPU{index}: {_text(error)}"
            continue
        for ask in columns.values():
            try:
                values.append(_text(ask(gpu)).replace(",", " "))
            except nvml.NVMLError as error:
                values.append("[GPU is lost]" if error.value == nvml.NVML_ERROR_GPU_IS_LOST else "[N/A]")
            except AttributeError:  # a library older than the function
                values.append("[N/A]")
        yield ", ".join(values)


def main(every_s: float) -> int:
    """Print the table, once or forever; ends with its parent."""
    try:
        nvml: Any = import_module("pynvml")
    except ImportError:
        return NO_LIBRARY
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        sys.stderr.write(f"{_text(error)}\n")
        return NO_LIBRARY
    columns, parent = _columns(nvml), os.getppid()
    while True:
        sys.stdout.write("\n".join([", ".join(columns), *rows(nvml, columns), "", ""]))
        sys.stdout.flush()
        if not every_s:
            return 0
        time.sleep(every_s)
        if os.getppid() != parent:
            return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
