"""The state of torch's random numbers, as a few digits: who should draw the same can be seen to do so."""

from __future__ import annotations

import binascii
from typing import Any

import torch


def digest(device: Any) -> str:
    """Of the CPU's generator, and of the device's; nothing is drawn, and the device is not waited for."""
    total = binascii.crc32(memoryview(torch.get_rng_state().numpy()))
    if device.type == "cuda" and torch.cuda.is_initialized():
        total = binascii.crc32(memoryview(torch.cuda.get_rng_state(device).numpy()), total)
    return f"{total:08x}"
