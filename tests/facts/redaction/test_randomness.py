"""Random text is told from names."""

# ruff: noqa: E501
from __future__ import annotations

import random
import string

import pytest

from whichrank.facts.redaction.randomness import is_random


@pytest.mark.parametrize(
    "alphabet",
    [
        string.ascii_letters + string.digits,
        string.ascii_lowercase + string.digits,
        "0123456789abcdef",
        string.ascii_uppercase + "234567",
    ],
)
@pytest.mark.parametrize("size", [24, 32, 40, 64])
def test_random_tokens_are_found(alphabet, size):
    source = random.Random(f"{alphabet}{size}")
    tokens = ["".join(source.choices(alphabet, k=size)) for _ in range(2000)]
    assert sum(map(is_random, tokens)) >= 1980


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
        "_verify_param_shape_across_processes", "ncclProxyProgressCreate", "DistributedDataParallel", "0x69f5df2b75f53db7",
        "1794755547148755050", "2026-11-15T05-51-12", "libtorch_cuda_linalg", "nvidia-cublas-cu12", "--------------------",
        "store_based_barrier_key", "NCCL_SOCKET_IFNAME=eth0", "ProcessGroupNCCL::WorkNCCL", "conditional-collective", "mlx5dv_reg_dmabuf_mr", "TCPDSACKIgnoredNoUndo", "1247585543688bps",
    ],
)  # fmt: skip
def test_names_are_not(name):
    assert not is_random(name)
