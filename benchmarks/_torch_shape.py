"""Makes flight-recorder dumps of torch's byte shape, fast: many ranks, one of which has stopped."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

START_NS = 1_790_000_000_000_000_000
FRAMES = 10
TP = 8
STUCK = 3
"""Entries that the others have queued or wait in when one rank has stopped."""

# Operation, axis of its group, elements, and how much larger the input and the output are.
SITES = (
    ("all_reduce", "tp", 1 << 24, 1, 1),
    ("_all_gather_base", "tp", 1 << 20, 1, TP),
    ("all_reduce", "tp", 1 << 23, 1, 1),
    ("_reduce_scatter_base", "tp", 1 << 22, TP, 1),
    ("all_reduce", "tp", 1 << 22, 1, 1),
    ("all_reduce", "tp", 1 << 21, 1, 1),
    ("all_reduce", "dp", 1 << 20, 1, 1),
    ("all_reduce", "dp", 3 << 18, 1, 1),
    ("broadcast", "world", 128, 1, 1),
    ("all_reduce", "world", 1, 1, 1),
)


class Pickle:
    """Protocol 2 as torch writes it: strings and frames are memoised where they first occur, entries are not."""

    def __init__(self) -> None:
        self.out: list[bytes] = [b"\x80\x02"]
        self.memo: dict[object, bytes] = {}

    def once(self, key: object, write: Callable[[], None]) -> None:
        if key in self.memo:
            self.out.append(self.memo[key])
            return
        write()
        at = len(self.memo)
        self.out.append(b"q" + bytes([at]) if at < 256 else b"r" + struct.pack("<I", at))
        self.memo[key] = b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at)

    def text(self, value: str) -> None:
        raw = value.encode()
        self.once(value, lambda: self.out.append(b"X" + struct.pack("<I", len(raw)) + raw))

    def frame(self, name: str, file: str, line: int) -> None:
        def write() -> None:
            self.out.append(b"}(")
            self.pairs({"name": name, "filename": file, "line": line})
            self.out.append(b"u")

        self.once((name, file, line), write)

    def pairs(self, values: dict[str, object]) -> None:
        for key, value in values.items():
            self.text(key)
            self.value(value)

    def value(self, value: object) -> None:
        if isinstance(value, str):
            self.text(value)
        elif isinstance(value, bytes):  # already written
            self.out.append(value)
        elif isinstance(value, int):
            self.out.append(number(value))
        elif isinstance(value, tuple):
            for part in value:
                self.value(part)
            self.out.append(b"\x86")
        elif isinstance(value, list):
            self.out.append(b"](")
            for part in value:
                self.value(part)
            self.out.append(b"e")
        elif isinstance(value, dict):
            self.out.append(b"}(")
            self.pairs(value)
            self.out.append(b"u")


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


TRUE, FALSE, NONE = b"\x88", b"\x89", b"N"


def frames_of(site: int) -> list[tuple[str, str, int]]:
    inner = [("all_reduce", "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 2800)]
    middle = [("forward", f"/srv/job/layer{n % 4}.py", 100 * site + n) for n in range(FRAMES - 2)]
    return [*inner, *middle, ("main", "/srv/job/train.py", 400 + site)]


def groups_of(rank: int, ranks: int) -> dict[str, tuple[int, str, str, list[int]]]:
    """Axis -> local id, name, description and members."""
    block, place = rank // TP, rank % TP
    return {
        "world": (0, "0", "default_pg", list(range(ranks))),
        "tp": (1, str(1 + block), "mesh_tp", list(range(block * TP, (block + 1) * TP))),
        "dp": (2, str(1 + ranks // TP + place), "mesh_dp", list(range(place, ranks, TP))),
    }


def header(rank: int, ranks: int) -> Pickle:
    """All that stands before the entries; it defines every string in which ranks differ."""
    pickle = Pickle()
    groups = groups_of(rank, ranks)
    config = {name: {"name": name, "desc": desc, "ranks": str(who)} for _, name, desc, who in groups.values()}
    pickle.out.append(b"}(")
    pickle.pairs({"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": {}})
    return pickle


def body(ranks: int, entries: int, count: int) -> bytes:
    """The first `count` of so many entries, of which the last ones hang: the same bytes on every rank."""
    pickle = header(0, ranks)
    before = len(pickle.out)
    groups = groups_of(0, ranks)
    pickle.text("entries")
    pickle.out.append(b"](")
    seq = dict.fromkeys(groups, 0)
    for n in range(count):
        site = n % len(SITES)
        op, axis, elements, sent, received = SITES[site]
        local, name, desc, _ = groups[axis]
        seq[axis] += 1
        created = START_NS + n * 1_500_000
        done = n < entries - STUCK
        pickle.out.append(b"}(")
        pickle.text("frames")
        pickle.out.append(b"](")
        for frame in frames_of(site):
            pickle.frame(*frame)
        pickle.out.append(b"e")
        pickle.pairs(
            {
                "record_id": n,
                "pg_id": local,
                "process_group": (name, desc),
                "thread_name": "pt_main_thread",
                "thread_id": "140245",
                "collective_seq_id": seq[axis],
                "p2p_seq_id": 0,
                "op_id": seq[axis],
                "profiling_name": f"nccl:{op}",
                "time_created_ns": created,
                "input_sizes": [[elements * sent]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[elements * received]],
                "output_dtypes": ["BFloat16"],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": number(created + 20_000) if done else NONE,
                "time_discovered_completed_ns": number(created + 900_000) if done else NONE,
                "retired": TRUE if done else FALSE,
                "timeout_ms": 600_000,
                "is_p2p": FALSE,
            }
        )
        pickle.out.append(b"u")
    return b"".join([*pickle.out[before:], b"eu."])


def write(folder: Path, ranks: int, entries: int) -> int:
    """Dumps of a job in which one rank stopped; returns that rank."""
    folder.mkdir(parents=True, exist_ok=True)
    stopped = ranks * 5 // 8 + 1
    whole, cut = body(ranks, entries, entries), body(ranks, entries, entries - STUCK)
    for rank in range(ranks):
        data = b"".join(header(rank, ranks).out) + (cut if rank == stopped else whole)
        (folder / f"trace_rank_{rank}").write_bytes(data)
    return stopped
