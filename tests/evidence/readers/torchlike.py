"""Writes pickles the way torch's C++ pickler does, and dumps of every version, for tests."""

from __future__ import annotations

import struct
from typing import Any

STEP_NS = 1_500_000
START_NS = 1_790_000_000_000_000_000


class Pickler:
    """Protocol 2; strings are memoised by value, dicts only where the caller marks them as shared."""

    def __init__(self, shared: list[dict[str, Any]]) -> None:
        self.out = [b"\x80\x02"]
        self.memo: dict[Any, int] = {}
        self.shared = {id(one) for one in shared}

    def reference(self, key: Any) -> bool:
        at = self.memo.get(key)
        if at is not None:
            self.out.append(b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at))
        return at is not None

    def define(self, key: Any) -> None:
        at = self.memo[key] = len(self.memo)
        self.out.append(b"q" + bytes([at]) if at < 256 else b"r" + struct.pack("<I", at))

    def number(self, value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x08" + struct.pack("<q", value)

    def write(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            self.out.append({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, int):
            self.out.append(self.number(value))
        elif isinstance(value, float):
            self.out.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            if not self.reference(value):
                raw = value.encode()
                self.out.append(b"X" + struct.pack("<I", len(raw)) + raw)
                self.define(value)
        elif isinstance(value, tuple):
            for one in value:
                self.write(one)
            self.out.append(b"\x86")
        elif id(value) in self.shared and self.reference(id(value)):
            pass
        else:
            self.out.append(b"](" if isinstance(value, list) else b"}(")
            for one in value if isinstance(value, list) else [x for pair in value.items() for x in pair]:
                self.write(one)
            self.out.append(b"e" if isinstance(value, list) else b"u")
            if id(value) in self.shared:
                self.define(id(value))


def torch_pickle(value: Any, shared: list[dict[str, Any]] | None = None) -> bytes:
    pickler = Pickler(shared or [])
    pickler.write(value)
    return b"".join(pickler.out) + b"."


def frames(site: int, depth: int = 4) -> list[dict[str, Any]]:
    return [{"name": f"f{n}", "filename": f"/srv/job/file{n % 3}.py", "line": 100 * site + n} for n in range(depth)]


def entry(n: int, site: int, stack: list[dict[str, Any]], seq: int, **changes: Any) -> dict[str, Any]:
    """An entry of dump version 2.10, in torch's order of keys."""
    created = START_NS + n * STEP_NS
    made = {
        "frames": stack,
        "record_id": n,
        "pg_id": site % 2,
        "process_group": (str(site % 2), "default_pg" if site % 2 == 0 else "mesh_tp"),
        "thread_name": "pt_main_thread",
        "thread_id": "139",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{('all_reduce', 'all_gather', 'broadcast')[site % 3]}",
        "time_created_ns": created,
        "input_sizes": [[1 << site, 4]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1 << site, 4], []],
        "output_dtypes": ["BFloat16", "Float"],
        "state": "completed",
        "time_discovered_started_ns": created + 20_000,
        "time_discovered_completed_ns": created + 900_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return {**made, **changes}


def dump(
    count: int, sites: int = 5, first: int = 0, unfinished: int = 2
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A dump of `count` entries that cycles through call sites, the last ones hung; and its shared frames."""
    stacks = [frames(site) for site in range(sites)]
    entries = []
    for n in range(first, first + count):
        site = n % sites
        hung = n >= first + count - unfinished
        changes = {"state": "scheduled", "retired": False, "time_discovered_started_ns": None,
                   "time_discovered_completed_ns": None} if hung else {}  # fmt: skip
        made = entry(n, site, stacks[site], n // 2 + 1, **changes)
        if not hung and n % 3 == 0:
            keys = list(made)
            at = keys.index("time_created_ns") + 1
            made = {
                **{k: made[k] for k in keys[:at]},
                "duration_ms": 0.5 * n,
                **{k: made[k] for k in keys[at:]},
            }
        entries.append(made)
    top = {
        "version": "2.10",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "1": {"name": "1", "desc": "mesh_tp", "ranks": "[0, 1]"},
        },
        "comm_lib_version": "2.28.9",
        "pg_status": {
            "0": {"last_enqueued_collective": 9, "last_started_collective": 8, "last_completed_collective": 7}
        },
        "entries": entries,
    }
    return top, [frame for stack in stacks for frame in stack]
