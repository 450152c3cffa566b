"""Units in which variables are read, and numbers that can't be meant in them."""

from __future__ import annotations

import re

from whichrank.facts.variables.environment import Variable

TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
SIZES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BY_NAME = (
    (re.compile(r"_(?:MSEC|MILSEC|MILLISECONDS|MS)$"), "ms"),
    (re.compile(r"_(?:USEC|MICROSECONDS)$"), "us"),
    (re.compile(r"_(?:SECS?|SECONDS)$"), "s"),
    (re.compile(r"_BYTES$"), "bytes"),
)
_BY_ROW = (("ms", "ms"), ("s", "s"), ("bytes", "bytes"))
# Their rows have no unit: local_elastic_agent.py of torch 2.13 takes seconds.
_SECONDS = frozenset({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"})

# The least number that can be meant. Defaults of the time for a dump were 2000 to 60000 (ProcessGroupNCCL.cpp of 2.3
# to 2.13), and tests of PyTorch's users go down to 500; the store is asked every 1000 ms; NCCL's own are in nccl.csv.
_LEAST = {
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": 400,
    "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC": 400,
    "TORCH_NCCL_COORD_CHECK_MILSEC": 10,
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT": 50,
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT": 50,
}
# The largest number of seconds that can be meant: by default a worker has 30 s to stop.
_MOST = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": 10_000, "NCCL_GIN_ERROR_QUERY_SEC": 10_000}
_BUFFERS = re.compile(r"NCCL_\w{0,40}(?:BUFFSIZE|CHUNK_?SIZE)")
_LEAST_BUFFER = 1024
"""Buffers and chunks have 128 KiB and more by default; what is below one KiB was meant in KiB or MiB."""


def unit(variable: Variable) -> str:
    """The unit of a number that this variable takes; empty where it has none, or none that is known."""
    if variable.name in _SECONDS:
        return "s"
    named = next((each for pattern, each in _BY_NAME if pattern.search(variable.name)), "")
    first = re.match(r"[a-z]{1,5}", variable.allowed)
    return named or next((each for word, each in _BY_ROW if first and first.group() == word), "")


def not_meant(variable: Variable, read: int) -> str:
    """What is wrong with a number that can't be meant in the variable's unit; empty where nothing is."""
    if _BUFFERS.fullmatch(variable.name) and unit(variable) == "bytes" and 0 < read < _LEAST_BUFFER:
        return f"the unit is bytes: {read} KiB are {read << 10}, {read} MiB are {read << 20}"
    if 0 < read < _LEAST.get(variable.name, 0):
        return f"the unit is milliseconds; {read} s are {read * 1000}"
    if read >= _MOST.get(variable.name, read + 1) and read % 1000 == 0:
        return f"the unit is seconds; {read} ms are {read // 1000}"
    return ""
