"""What a rank starts with: its code, versions and settings. Ranks of one job should say the same."""

from __future__ import annotations

import binascii
import os
import platform
import socket
import sys
import sysconfig
from typing import Any

import torch

_LIBRARIES = ("site-packages", "dist-packages")
_OWN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "TORCHELASTIC", "HOSTNAME", "PWD", "OLDPWD",
        "NCCL_HOSTID", "CUDA_VISIBLE_DEVICES", "TORCH_FR_DUMP", "TORCH_NCCL_DEBUG_INFO", "NCCL_DEBUG_FILE")  # fmt: skip
_TELLING = ("NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "CUDA_", "CUBLAS_", "OMP_", "MKL_", "GLOO_",
            "PYTHONHASHSEED", "NVIDIA_TF32", "KMP_", "HF_", "TOKENIZERS_")  # fmt: skip
_MOST_FILES = 2000


def record(rank: int, world: int) -> dict[str, Any]:
    return {
        "t": "start", "rank": rank, "world": world, "host": socket.gethostname(), "pid": os.getpid(),
        "attempt": _attempt(), "backend": _backend(), "gpu": gpu(), "versions": versions(), "source": source(),
        "settings": settings(),
    }  # fmt: skip


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "cuda": str(torch.version.cuda)}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["gpu"] = torch.cuda.get_device_name()
    for name in ("numpy", "transformers", "lightning", "accelerate", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


def settings() -> dict[str, str]:
    """Variables of libraries, switches of torch that change results, and the arguments of the program."""
    found = {
        name: value[:200]
        for name, value in sorted(os.environ.items())
        if name.startswith(_TELLING) and not name.startswith(_OWN)
    }
    found["deterministic algorithms"] = str(torch.are_deterministic_algorithms_enabled())
    found["float32 matmul precision"] = str(torch.get_float32_matmul_precision())
    found["default dtype"] = str(torch.get_default_dtype())
    found["cudnn.benchmark"] = str(torch.backends.cudnn.benchmark)
    return found


def source() -> dict[str, str]:
    """Checksums of the files of the training code: what is loaded and belongs to no library."""
    found: dict[str, str] = {}
    stdlib = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"])
    for module in list(sys.modules.values())[:20_000]:
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or len(found) >= _MOST_FILES:
            continue
        path = os.path.abspath(path)  # noqa: PTH100
        if path.startswith(stdlib) or any(part in path for part in _LIBRARIES) or "_whichrank_inside" in path:
            continue
        if "/whichrank-" in path or "/whichrank/" in path:
            continue
        try:
            with open(path, "rb") as stream:  # noqa: PTH123
                found[path] = f"{binascii.crc32(stream.read(4 << 20)):08x}"
        except OSError:
            continue
    return found


def gpu() -> dict[str, Any] | None:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    index = torch.cuda.current_device()
    return {"index": index, "uuid": str(getattr(torch.cuda.get_device_properties(index), "uuid", "") or "")}


def serial() -> str:
    """What is printed on the board, by the driver's own library, which NCCL has loaded too; "" where it won't say."""
    found = gpu()
    if not found or not found["uuid"]:
        return ""
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return ""
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(64)
        uuid = found["uuid"] if found["uuid"].startswith(("GPU-", "MIG-")) else f"GPU-{found['uuid']}"
        failed = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        failed = failed or nvml.nvmlDeviceGetSerial(handle, text, 64)
        nvml.nvmlShutdown()
    except (OSError, AttributeError):  # no driver, or one without these calls
        return ""
    return "" if failed else text.value.decode("ascii", "replace")


def _attempt() -> int:
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0


def _backend() -> str:
    try:
        return str(torch.distributed.get_backend())
    except (RuntimeError, ValueError):
        return ""
