"""NCCL logs: exact on recorded ones, the same under every disguise, and unharmed by anything."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from tests import cost
from whichrank.evidence.readers import nccl_log
from whichrank.evidence.readers.nccl_log import prefix, scan, skim
from whichrank.evidence.readers.nccl_log.messages import SIGN_WORDS, SIGNS
from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.native import library
from whichrank.model.contracts import Item
from whichrank.records.nccl import UNKNOWN, CommCalls, NcclLog, NcclProcess

SAMPLES = Path(__file__).parents[2] / "samples" / "nccl"
CONDITIONAL = sorted((SAMPLES / "conditional").glob("nccl.*.log"))
TEXTS = {path.name: path.read_bytes() for path in CONDITIONAL}
ONE = TEXTS["nccl.vm.760.log"]


def read(data: bytes, keep: int | None = None) -> NcclLog:
    return scan.scan_bytes(data, "x.log", keep)


def process(log: NcclLog, pid: int) -> NcclProcess:
    (found,) = [item for item in log.processes if item.pid == pid]
    return found


def totals(log: NcclLog) -> dict[tuple[str, str, int], int]:
    return {(item.process.label, item.comm, item.generation): item.total for item in log.calls}


def rows(calls: CommCalls) -> list[tuple[str, int, int, int, int, int]]:
    columns = calls.calls
    names = [columns.functions[index] for index in columns.func]
    fields = (columns.count, columns.datatype, columns.op, columns.root, columns.op_count)
    return list(zip(names, *(field.tolist() for field in fields), strict=True))


# ---- recorded logs


def test_a_recorded_log_is_read_to_the_letter() -> None:
    log = read(ONE)
    (found,) = log.processes
    assert (found.label, found.version, found.network) == ("vm:760", "2.28.9+cuda13.0", "Socket")
    assert (found.bootstrap_interface, found.bootstrap_address) == ("lo", "127.0.0.1")
    assert found.no_ib_device
    assert found.ib_devices == ()
    assert found.env == {"NCCL_SOCKET_IFNAME": "lo", "NCCL_HOSTID": "node2"}
    start, complete = found.inits
    assert (start.phase, start.line, complete.phase, complete.line) == ("start", 21, "complete", 48)
    for init in found.inits:
        assert (init.api, init.comm, init.comm_id) == (
            "ncclCommInitRankConfig",
            "0x167e6490",
            "f454ca2af5587460",
        )
        assert (init.rank, init.nranks, init.cuda_dev, init.nvml_dev, init.bus_id) == (2, 4, 0, 0, "60")
    assert [(end.kind, end.phase, end.line) for end in found.ends] == [
        ("abort", "start", 84),
        ("abort", "complete", 91),
    ]
    assert [(trail.place, trail.code, trail.line) for trail in found.trails] == [
        ("misc/socket.cc:64", 3, 86), ("misc/socket.cc:81", 3, 87), ("misc/socket.cc:868", 3, 88),
        ("misc/socket.cc:943", 3, 90),
    ]  # fmt: skip
    assert found.transport_counts == {"NET/Socket": 4}
    assert [(t.src, t.dst, t.direction, t.channels) for t in found.transports] == [
        (1, 2, "receive", 2), (2, 3, "send", 2),
    ]  # fmt: skip
    assert (found.nodes[0].nodes, found.nodes[0].local_ranks) == (4, 1)
    assert log.lines == log.nccl_lines == 91
    assert not log.cut_end


def test_calls_have_number_arguments_and_line() -> None:
    (calls,) = read(ONE).calls
    assert (calls.comm_id, calls.rank, calls.nranks, calls.total, calls.complete) == (
        "f454ca2af5587460",
        2,
        4,
        16,
        True,
    )
    assert rows(calls)[0] == ("AllGather", 1, 4, 0, 0, 0)
    assert rows(calls)[-2:] == [("AllReduce", 270864, 7, 0, 0, 14), ("AllReduce", 262656, 7, 0, 0, 15)]
    assert calls.calls.number.tolist() == list(range(16))
    lines = ONE.split(b"\n")
    for position, number in enumerate(calls.calls.line.tolist()):
        assert lines[number - 1].decode() == calls.quote(position)


def test_who_is_who_and_who_did_not_call() -> None:
    found = {}
    for path in CONDITIONAL:
        (calls,) = read(path.read_bytes()).calls
        found[calls.rank] = (calls.process.pid, calls.total)
    assert found == {0: (758, 15), 1: (759, 15), 2: (760, 16), 3: (761, 15)}


def test_ranks_that_wait_for_a_missing_one_have_started_and_not_completed() -> None:
    logs = [read(path.read_bytes()) for path in (SAMPLES / "missing_rank").glob("nccl.*.log")]
    inits = [init for log in logs for item in log.processes for init in item.inits]
    assert {init.rank for init in inits} == {0, 1, 2}
    assert {init.phase for init in inits} == {"start"}
    assert {init.nranks for init in inits} == {4}
    assert not any(log.calls for log in logs)


def test_a_warning_carries_time_place_and_trail() -> None:
    (found,) = read((SAMPLES / "dup.log").read_bytes()).processes
    (warning,) = found.warnings
    assert warning.text == "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
    assert (warning.level, warning.file, warning.function) == ("WARN", "init.cc:904", None)
    assert warning.time == "2026-11-15 00:03:53"
    assert {trail.code for trail in found.trails} == {5}
    assert found.trails[1].note == "[Async thread]"
    assert [(peer.number, peer.pid, peer.own) for peer in found.ras_peers] == [
        (0, 627, True),
        (1, 628, False),
    ]
    assert any("closed by peer" in note.text for note in found.notes)


def test_a_process_that_lost_its_peer() -> None:
    (found,) = read((SAMPLES / "host4" / "rank2.out").read_bytes()).processes
    assert found.warnings_total == 2
    assert {warning.text for warning in found.warnings} == {"socketProgress: Connection closed by remote peer "}
    assert {trail.code for trail in found.trails} == {6}


# ---- the same under every disguise

DISGUISES: dict[str, Callable[[bytes, int], bytes]] = {
    "mpirun": lambda line, _: b"[1,13]<stderr>:" + line,
    "mpirun --tag-output with time": lambda line, _: b"Sun Nov 15 02:33:44 2026[1,3]<stdout>:" + line,
    "srun --label": lambda line, _: b"13: " + line,
    "elastic": lambda line, _: b"[default3]:" + line,
    "elastic with role": lambda line, _: b"[trainer7|5]:" + line,
    "pdsh": lambda line, _: b"node7: " + line,
    "kubernetes": lambda line, n: b"2026-11-15T00:18:%02d.%09dZ stdout F " % (n % 60, n) + line,
    "clock": lambda line, n: b"12:%02d:01 " % (n % 60) + line,
    "compose": lambda line, _: b"worker-1  | " + line,
    "ray": lambda line, _: b"\x1b[36m(RayTrainWorker pid=1234, ip=10.0.0.4)\x1b[0m " + line,
    "colour": lambda line, _: b"\x1b[0;32m" + line + b"\x1b[0m",
    "carriage return": lambda line, _: line + b"\r",
    "progress bar": lambda line, _: b"\r 12%|#2        | 12/100 [00:01<00:09]\r" + line,
}


def facts_of(log: NcclLog) -> tuple[object, ...]:
    (found,) = log.processes
    return (
        found.label, found.version, found.network, found.env, found.inits, found.ends, found.nodes,
        found.trails, found.transports, [(w.text, w.file, w.line) for w in found.warnings], totals(log),
        [rows(calls) for calls in log.calls],
    )  # fmt: skip


@pytest.mark.parametrize("name", DISGUISES)
def test_launchers_colours_and_clocks_change_nothing(name: str) -> None:
    disguised = b"\n".join(DISGUISES[name](line, n) for n, line in enumerate(ONE.splitlines())) + b"\n"
    plain, other = read(ONE), read(disguised)
    for init in other.processes[0].inits:
        force_setattr(init, "time", None)
    for end in other.processes[0].ends:
        force_setattr(end, "time", None)
    assert facts_of(other) == facts_of(plain)


def test_the_launchers_words_and_clock_are_kept() -> None:
    log = read(b"2026-11-15T00:18:01.5Z [1,13]<stderr>:" + ONE.split(b"\n")[20] + b"\n")
    assert log.processes[0].launcher == "2026-11-15T00:18:01.5Z [1,13]<stderr>:"
    assert log.processes[0].inits[0].time == "2026-11-15T00:18:01.5Z"


def test_four_ranks_in_one_file_read_as_in_four() -> None:
    queues = [text.splitlines() for text in TEXTS.values()]
    dice = random.Random(4)
    merged = []
    while any(queues):
        merged.append(dice.choice([queue for queue in queues if queue]).pop(0))
    log = read(b"\n".join(merged))
    assert len(log.processes) == 4
    for text in TEXTS.values():
        alone = read(text)
        together = process(log, alone.processes[0].pid or 0)
        assert together.env == alone.processes[0].env
        assert [init.comm_id for init in together.inits] == [init.comm_id for init in alone.processes[0].inits]
        (calls,) = [item for item in log.calls if item.process is together]
        assert rows(calls) == rows(alone.calls[0])
        assert (calls.rank, calls.comm_id) == (alone.calls[0].rank, alone.calls[0].comm_id)


def test_a_line_cut_by_another_process_counts_for_both() -> None:
    lines = TEXTS["nccl.vm.760.log"].splitlines()
    other = TEXTS["nccl.vm.761.log"].splitlines()
    call, others_call = lines[82], next(line for line in other if b"opCount 5 " in line)
    text = b"\n".join([*lines[:82], *other[:60], call[:70] + others_call, *other[60:]]) + b"\n"
    log = read(text)
    assert {item.label for item in log.processes} == {"vm:760", "vm:761"}
    found = {item.process.pid: item.total for item in log.calls}
    assert found == {760: 16, 761: read(TEXTS["nccl.vm.761.log"]).calls[0].total + 1}


@pytest.mark.parametrize("cut", range(0, len(ONE), 173))
def test_truncation_loses_the_rest_and_nothing_else(cut: int) -> None:
    log = read(ONE[:cut])
    whole = ONE[:cut].rpartition(b"\n")[0]
    begun = ONE[:cut].rpartition(b"\n")[2]
    assert log.cut_end == bool(begun)
    calls = sum(item.total for item in log.calls) + sum(item.unplaced_calls for item in log.processes)
    expected = whole.count(b": opCount ") + (re.search(rb": opCount [0-9a-f]", begun) is not None)
    assert calls == expected


def test_a_call_cut_before_its_arguments_is_counted_and_says_so() -> None:
    end = ONE.index(b"opCount f") + len(b"opCount f sendbuff 0x7f")
    log = read(ONE[:end])
    assert log.calls[0].total == 16
    assert rows(log.calls[0])[-1] == ("AllReduce", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 15)


def test_utf16_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "pasted.log"
    path.write_bytes(ONE.decode().encode("utf-16"))
    item = Item(path, path.name, path.stat().st_size, 0)
    assert nccl_log.sniff(item.head(), item.label)
    (log,) = nccl_log.read(item).records
    assert facts_of(log) == facts_of(read(ONE))


# ---- shapes by version (format strings of NVIDIA/nccl, one tag per minor release)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"h-1:9:8 [7] NCCL INFO x", ("h-1", 9, 8, 7, "INFO", None, None)),
        (b"h:9:8 [-1] misc/socket.cc:72 NCCL WARN x", ("h", 9, 8, -1, "WARN", "misc/socket.cc:72", None)),
        (b"[2026-11-15 00:18:01] h:9:8 [0] init.cc:9 NCCL WARN x", ("h", 9, 8, 0, "WARN", "init.cc:9", None)),
        (
            b"h:9:8 [0] init.cc:2955 (ncclCommInitRank) NCCL WARN x",
            ("h", 9, 8, 0, "WARN", "init.cc:2955", "ncclCommInitRank"),
        ),
        (b"h:9:8 NCCL CALL ncclAllReduce(0x1)", ("h", 9, 8, None, "CALL", None, None)),
        (b"10:11:12 h:9:8 NCCL CALL ncclAllReduce(0x1)", ("h", 9, 8, None, "CALL", None, None)),
        (b"h:9:8 [0] 12.345 commAlloc:300 NCCL TRACE x", ("h", 9, 8, 0, "TRACE", "commAlloc:300", None)),
        (b"h:9 NCCL DIAG === NCCL Diagnostics ===", ("h", 9, None, None, "DIAG", None, None)),
        (b"[2026-01-01 00:00:00] h:9:8 [0] NCCL ATTN x", ("h", 9, 8, 0, "ATTN", None, None)),
        (b"include/shm.h:28 NCCL WARN x", (None, None, None, None, "WARN", "include/shm.h:28", None)),
        (b"h:9:8 [3] ofi_process_cq:1039 NCCL WARN x", ("h", 9, 8, 3, "WARN", "ofi_process_cq:1039", None)),
    ],
)
def test_prefixes(line: bytes, expected: tuple[object, ...]) -> None:
    (entry,) = prefix.messages(line)
    place = (entry.host, entry.pid, entry.tid, entry.device, entry.level, entry.place, entry.function)
    assert place == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "comm 0xa rank 1 nranks 8 cudaDev 1 busId 1a000 - Init COMPLETE",
            ("", None, None, "1a000", None, None),
        ),
        (
            "comm 0xa rank 1 nranks 8 cudaDev 1 busId 1a000 commId 0x12ab - Init COMPLETE",
            ("", "00000000000012ab", None, "1a000", None, None),
        ),
        (
            "comm 0xa rank 1 nranks 8 cudaDev 1 nvmlDev 3 busId 1a000 commId 0x12ab - Init START",
            ("", "00000000000012ab", 3, "1a000", None, None),
        ),
        (
            (
                "[Rank 1] ncclCommInitRankConfig comm 0xa rank 1 nranks 8 cudaDev 1 nvmlDev 3 busId 1a000 "
                "commId 0x12ab - Init START"
            ),
            ("ncclCommInitRankConfig", "00000000000012ab", 3, "1a000", None, None),
        ),
        (
            (
                "ncclCommSplit comm 0xa rank 1 nranks 8 cudaDev 1 nvmlDev 3 busId 1a000 parent 0xb "
                "color 5 key 2 "
                "commId 0x12ab - Init COMPLETE"
            ),
            ("ncclCommSplit", "00000000000012ab", 3, "1a000", "0xb", 5),
        ),
        (
            (
                "ncclCommSplit comm 0xa rank 1 nranks 8 cudaDev 1 nvmlDev 3 busId 1a000 parent 0xb "
                "splitCount 1 "
                "color 5 key 2- Init START"
            ),
            ("ncclCommSplit", None, 3, "1a000", "0xb", 5),
        ),
        (
            (
                "ncclCommSplit comm 0xa rank 1 nranks 8 cudaDev 1 nvmlDev 3 busId 1a000 commId 0x12ab "
                "parent 0xb "
                "childCount 1 color -1 key 2 - Init START"
            ),
            ("ncclCommSplit", "00000000000012ab", 3, "1a000", "0xb", -1),
        ),
    ],
)
def test_init_lines(message: str, expected: tuple[object, ...]) -> None:
    (init,) = read(f"h:1:1 [1] NCCL INFO {message}\n".encode()).processes[0].inits
    assert (init.comm, init.rank, init.nranks, init.cuda_dev) == ("0xa", 1, 8, 1)
    assert (init.api, init.comm_id, init.nvml_dev, init.bus_id, init.parent, init.color) == expected


@pytest.mark.parametrize(
    ("via", "kind", "gdr"),
    [
        ("Channel 00 : 0[1a000] -> 1[1b000] via P2P/IPC/read", "P2P/IPC", False),
        ("Channel 00 : 0[1a000] -> 1[1b000] via direct shared memory", "SHM", False),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM", False),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", "P2P/direct pointer", False),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM", False),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA/Shared", "NET/IB", True),
        ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0(3)", "NET/IB", False),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0", "NET/AWS Libfabric", False),
    ],
)
def test_transports(via: str, kind: str, *, gdr: bool) -> None:
    (found,) = read(f"h:1:1 [0] NCCL INFO {via}\nh:1:1 [0] NCCL INFO {via}\n".encode()).processes
    (transport,) = found.transports
    assert (transport.src, transport.dst, transport.kind, transport.gdr, transport.channels) == (
        0,
        1,
        kind,
        gdr,
        2,
    )


def test_settings_echoed_and_refused() -> None:
    text = (
        b"h:1:1 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.\n"
        b"h:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_1.\n"
        b"h:1:1 [0] NCCL INFO Invalid value abc for NCCL_NTHREADS, using default -2.\n"
        b"h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
        b"h:1:1 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.1<0>\n"
    )
    (found,) = read(text).processes
    assert found.env == {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_HCA": "mlx5_1."}
    assert [(item.name, item.value, item.default) for item in found.invalid] == [("NCCL_NTHREADS", "abc", "-2")]
    assert found.ib_devices == ("mlx5_0:1/IB", "mlx5_1:1/RoCE")
    assert (found.bootstrap_interface, found.bootstrap_address) == ("eth0", "10.0.0.1")


def test_the_bare_version_line_of_level_warn() -> None:
    log = read(b"NCCL version 2.18.3+cuda11.8\nstep 1 loss 2.0\n")
    assert log.versions == ["2.18.3+cuda11.8"]
    assert nccl_log.mentions(b"NCCL version 2.18.3+cuda11.8\n")
    assert not nccl_log.mentions(b"NCCL version 2.28.9 compiled with CUDA 13.0\n")


# ---- many calls: counted in bulk, as if read one by one

FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send")


def call_line(host: str, pid: int, tid: int, function: str, comm: int, counter: int, dice: random.Random) -> bytes:
    buffer = dice.randrange(1 << 44)
    stream = dice.choice(["(nil)", "0x2083ed30", "0x7a2010"])
    return (
        f"{host}:{pid}:{tid} [0] NCCL INFO {function}: opCount {counter:x} sendbuff {buffer:#x} recvbuff "
        f"{buffer + 512:#x} count {dice.choice([1, 4096, 6637568])} datatype 7 op 0 root 0 comm {comm:#x} "
        f"[nranks=4] stream {stream}"
    ).encode()


def busy_log(
    seed: int, lines: int, decorate: Callable[[bytes, int], bytes]
) -> tuple[bytes, Counter[tuple[str, str, int]]]:
    """Calls of several processes and communicators among other lines, and the true totals."""
    dice = random.Random(seed)
    hosts = [("node-1", 41, 77), ("node-1", 42, 770), ("gpu-node-002", 41234, 51234), ("vm", 7, 7)]
    comms = [0x7F00C8A1B2F0, 0x55D3A0, 0x7F00C8A1B3F0]
    truth: Counter[tuple[str, str, int]] = Counter()
    out: list[bytes] = []
    generation: Counter[tuple[str, str]] = Counter()
    for number in range(lines):
        host, pid, tid = dice.choice(hosts)
        comm = dice.choice(comms)
        label, pointer = f"{host}:{pid}", f"{comm:#x}"
        draw = dice.random()
        if draw < 0.02:
            out.append(f"[rank{number % 8}] step {number} loss 1.5".encode())
        elif draw < 0.03:
            line = f"{host}:{pid}:{tid} [0] NCCL INFO NCCL_X{number % 5} set by environment to {number}."
            out.append(decorate(line.encode(), number))
        elif draw < 0.0305:
            line = f"{host}:{pid}:{tid} [0] NCCL INFO comm {pointer} rank 0 nranks 4 busId 60 - Init START"
            out.append(decorate(line.encode(), number))
            generation[label, pointer] += truth[label, pointer, generation[label, pointer]] > 0
        else:
            line_bytes = call_line(host, pid, tid + dice.randrange(3), dice.choice(FUNCTIONS), comm, number // 7, dice)
            out.append(decorate(line_bytes, number))
            truth[label, pointer, generation[label, pointer]] += 1
    return b"\n".join(out) + b"\n", truth


@pytest.mark.parametrize("chunk", [1 << 16, 1 << 20])
@pytest.mark.parametrize("name", ["plain", "mpirun", "kubernetes", "ray", "colour", "carriage return"])
def test_bulk_counting_is_exact(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", chunk)
    text, truth = busy_log(chunk, 6000, DISGUISES.get(name, lambda line, _: line))
    in_bulk = read(text, keep=50)
    monkeypatch.setattr(scan, "_WORTH_BULK", 1 << 60)
    one_by_one = read(text, keep=50)
    assert totals(in_bulk) == {key: total for key, total in truth.items() if total} == totals(one_by_one)
    for left, right in zip(sorted(in_bulk.calls, key=order), sorted(one_by_one.calls, key=order), strict=True):
        assert rows(left) == rows(right)
        assert left.calls.line.tolist() == right.calls.line.tolist()
        assert left.rank == right.rank
    assert in_bulk.nccl_lines == one_by_one.nccl_lines
    assert [item.env for item in in_bulk.processes] == [
        process(one_by_one, item.pid or 0).env for item in in_bulk.processes
    ]


def order(calls: CommCalls) -> tuple[str, str, int]:
    return calls.process.label, calls.comm, calls.generation


def test_hosts_whose_names_end_alike_stay_apart() -> None:
    dice = random.Random(6)
    lines = [call_line(host, 1, 1, "AllReduce", 0xABC0, n, dice) for n in range(400) for host in ("a1", "ba1")]
    assert totals(read(b"\n".join(lines))) == {("a1:1", "0xabc0", 0): 400, ("ba1:1", "0xabc0", 0): 400}


def test_bulk_counting_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    read_lines = 0
    real = prefix.messages

    def counting(line: bytes) -> object:
        nonlocal read_lines
        read_lines += 1
        return real(line)

    monkeypatch.setattr(scan, "messages", counting)
    dice = random.Random(1)
    text = b"\n".join(call_line("h", 1, 1, "AllReduce", 0xABC0, n, dice) for n in range(20_000))
    (calls,) = read(text).calls
    assert calls.total == 20_000
    assert read_lines < 200


def test_chatter_of_other_subsystems_is_skimmed_and_still_a_sign_of_life() -> None:
    chatter = b"h:1:1 [0] NCCL INFO channel.cc:41 Cuda Alloc Size 1152 pointer 0x7f0d4b200000\n"
    tuning = b"h:1:1 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}\n"
    trail = b"h:1:1 [0] NCCL INFO channel.cc:41 -> 3\n"
    log = read(chatter * 600 + trail + (chatter + tuning) * 600)
    (found,) = log.processes
    assert [(item.place, item.code, item.line) for item in found.trails] == [("channel.cc:41", 3, 601)]
    assert (found.last_line, log.nccl_lines) == (1801, 1801)
    assert found.last_text.startswith("AllReduce: 4194304 Bytes")


def test_the_last_calls_are_kept_with_their_numbers() -> None:
    dice = random.Random(2)
    lines = [call_line("h", 1, 1, FUNCTIONS[n % 5], 0xABC0, 0, dice) for n in range(9000)]
    (calls,) = read(b"\n".join(lines)).calls
    assert (calls.total, calls.complete, len(calls.kept)) == (9000, False, 4096)
    assert calls.calls.number[[0, -1]].tolist() == [9000 - 4096, 8999]
    assert list(calls.kept) == lines[-4096:]
    assert rows(calls)[-1][0] == FUNCTIONS[8999 % 5]
    assert set(calls.calls.op_count.tolist()) == {0}


def test_a_quiet_communicator_keeps_its_last_calls_in_a_busy_file() -> None:
    dice = random.Random(3)
    quiet = [call_line("h", 1, 1, "Broadcast", 0xD, n, dice) for n in range(3)]
    busy = [call_line("h", 1, 1, "AllReduce", 0xABC0, n, dice) for n in range(12_000)]
    log = read(b"\n".join([*busy[:10], quiet[0], *busy[10:20], *quiet[1:], *busy[20:]]))
    (found,) = [calls for calls in log.calls if calls.comm == "0xd"]
    assert found.total == 3
    assert list(found.kept) == quiet
    assert found.calls.line.tolist() == [11, 22, 23]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    dice = random.Random(5)
    block = b"\n".join(call_line("h", 1, 1, "AllReduce", 0xABC0, n, dice) for n in range(20_000)) + b"\n"
    peaks = []
    for times in (2, 12):
        path = tmp_path / f"{times}.log"
        path.write_bytes(block * times)
        tracemalloc.start()
        nccl_log.read(Item(path, path.name, path.stat().st_size, 0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2


# ---- unharmed by anything


@pytest.mark.parametrize(
    "hostile",
    [
        b"\0" * (3 << 20) + b"h:1:1 [0] NCCL INFO Using network IB\n",
        b"a" * (3 << 20),
        b":1:1 " * 400_000 + b"NCCL INFO x\n",
        b"NCCL INFO " * 20_000,
        (b"h:" + b"1" * 500 + b":1 [0] NCCL INFO x\n") * 2000,
        (b"x" * 200 + b":1:1 [0] " + b"y" * 180 + b" NCCL WARN " + b"z" * 600 + b"\n") * 2000,
        b"h:1:1 [0] NCCL INFO comm 0xa rank 1 nranks 8 " + b"- Init " * 100_000 + b"\n",
        b"".join(b"h:%d:1 [0] NCCL WARN x\n" % n for n in range(20_000)),
        b"\n" * 500_000,
        b"h:1:1 [0] NCCL INFO AllReduce: opCount " * 5000,
    ],
    ids=range(10),
)
def test_hostile_text_costs_little(hostile: bytes) -> None:
    with cost.at_most(4):
        read(hostile)


def test_the_end_of_a_monstrous_line_is_read() -> None:
    log = read(b"\0" * (3 << 20) + b"h:1:1 [0] NCCL INFO Using network IB\n")
    assert log.processes[0].network == "IB"
    assert log.lines == 1


def test_floods_of_warnings_keep_the_first_and_the_last() -> None:
    text = b"".join(b"h:1:1 [0] a.cc:1 NCCL WARN number %d\n" % n for n in range(5000))
    (found,) = read(text).processes
    assert found.warnings_total == 5000
    assert len(found.warnings) <= 1200
    assert (found.warnings[0].text, found.warnings[-1].text) == ("number 0", "number 4999")


def test_repeated_warnings_are_counted_and_a_rare_one_among_them_is_kept() -> None:
    warning = b"h%d:1:1 [0] a.cc:1 NCCL WARN peer %d is gone\n"
    lines = [warning % (n % 3, n) for n in range(60_000)]
    lines[30_000] = b"h1:1:1 [0] b.cc:7 NCCL WARN Call to connect failed\n"
    log = read(b"".join(lines))
    assert log.nccl_lines == 60_000
    assert sum(found.warnings_total for found in log.processes) == 60_000
    for found in log.processes:
        assert [w.line for w in found.warnings] == sorted({w.line for w in found.warnings})
        assert 100 < len(found.warnings) < 300
        assert found.last_line == found.warnings[-1].line > 59_990
    rare = [(p.host, w.line) for p in log.processes for w in p.warnings if "connect" in w.text]
    assert rare == [("h1", 30_001)]


def test_signs_in_c_are_those_of_the_pattern() -> None:
    if library() is None:
        pytest.skip("the library in C was not built")
    dice = random.Random(4)
    pieces = [
        *SIGN_WORDS,
        b"-> ",
        b"via ",
        b"match",
        b"HIN",
        b"Coun",
        b"NCC",
        b" -> x",
        b"0",
        b" ",
        b"Trees [0] 3/-1",
        b"",
    ]
    texts = [b"".join(dice.choices(pieces, k=dice.randrange(4))) for _ in range(2000)]
    chunk = Chunk(bytearray(b"\n".join(texts) + bytes(PADDING)), sum(map(len, texts)) + len(texts) - 1, 0, 1)
    starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
    ends = starts + [len(text) for text in texts]
    told = [SIGNS.search(text) is not None for text in texts]
    assert skim._with_signs(chunk, starts, ends).tolist() == told


@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([*TEXTS.values(), (SAMPLES / "dup.log").read_bytes()])))
    for _ in range(data.draw(st.integers(1, 20))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 200)))
        text[begin:end] = data.draw(
            st.one_of(st.just(b""), st.binary(max_size=50), st.just(bytes(text[end : end + 90])))
        )
    log = read(bytes(text))
    assert sum(calls.total for calls in log.calls) <= text.count(b"opCount ")
    for calls in log.calls:
        assert len(calls.calls) == len(calls.kept)


def test_files_without_nccl_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"step 1 loss 2.0\nNCCL_DEBUG=INFO is a good idea\n")
    reading = nccl_log.read(Item(path, path.name, path.stat().st_size, 0))
    assert (reading.records, reading.quality) == ([], "ignored")
    assert not nccl_log.sniff(path.read_bytes(), path.name)
    assert nccl_log.sniff(ONE[:4096], "nccl.vm.760.log")


def test_connections_in_bulk_are_counted_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("P2P/CUMEM", "NET/IB/0", "NET/IB/1/GDRDMA", "SHM/direct/direct")
    lines = [
        f"node{n % 3}:{4000 + n % 6}:{5000 + n % 6} [{n % 6}] NCCL INFO Channel {n % 16:02d}/0 : {n % 6}[0] -> "
        f"{(n + 1) % 6}[1] via {ways[n // 7 % 4]}"
        for n in range(20_000)
    ]
    lines[12_345] += "node1:4001:5001 [1] NCCL INFO Channel 00/0 : 1[0] -> 2[1] via NET/Socket/0"
    text = "\n".join(lines).encode() + b"\n"
    in_bulk = read(text)
    monkeypatch.setattr(scan, "_WORTH_BULK", 1 << 60)
    one_by_one = read(text)
    assert in_bulk.nccl_lines == one_by_one.nccl_lines
    for found in in_bulk.processes:
        other = process(one_by_one, found.pid or 0)
        assert found.transport_counts == other.transport_counts
        assert (found.last_line, found.last_text) == (other.last_line, other.last_text)
