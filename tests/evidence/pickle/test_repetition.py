"""What is printed again and again costs little, hides nothing that differs, and is told with its first and last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import cost
from whichrank.evidence.readers import known_messages, torch_output
from whichrank.evidence.readers.nccl_log import scan
from whichrank.evidence.readers.torch_output import progress
from whichrank.model.contracts import Item
from whichrank.records.events.base import Event
from whichrank.records.events.messages import KnownMessage
from whichrank.records.log import Progress
from whichrank.records.stack import ProcessStack

RETRY = """Traceback (most recent call last):
  File "/job/data/prefetch.py", line {line}, in fetch
    body = client.get_object(Bucket=bucket, Key=key)
botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: {url:x}

"""


def read_torch(folder: Path, text: str, name: str = "job.log") -> list[object]:
    path = folder / name
    path.write_text(text)
    return torch_output.read(Item(path, name, path.stat().st_size, 0)).records


def read_messages(folder: Path, text: str) -> list[KnownMessage]:
    path = folder / "job.log"
    path.write_text(text)
    return known_messages.read(Item(path, "job.log", path.stat().st_size, 0)).records


def of_kind(records: list[object], kind: str) -> list[Event]:
    return [record for record in records if isinstance(record, Event) and record.kind == kind]


def test_a_traceback_between_thousands_of_others_is_heard(tmp_path: Path) -> None:
    often = "".join(RETRY.format(line=n % 90, url=n * 7919) for n in range(3000))
    other = RETRY.replace("prefetch.py", "model.py").replace("botocore.exceptions.ReadTimeoutError", "ValueError")
    known = RETRY.replace("Read timeout", "CUDA error: an illegal memory access was encountered")
    found = of_kind(
        read_torch(tmp_path, often + other.format(line=7, url=1) + known.format(line=8, url=2) + often), "traceback"
    )
    assert [e.type for e in found if "model.py" in e.frames[-1].file] == ["ValueError"]
    assert sum("illegal memory access" in str(e.message) for e in found) == 1
    lines = [e.line for e in found]
    assert lines == sorted(lines)
    assert (lines[0], lines[-1]) == (1, 5 * 6001 + 1)
    assert len(found) < 100


def test_stacks_of_threads_are_no_repeated_tracebacks(tmp_path: Path) -> None:
    stack = (
        "Timeout (0:05:00)!\nThread 0x00007f0000001000 (most recent call first):\n"
        '  File "/job/train.py", line 18 in step\n  File "/job/train.py", line 40 in <module>\n\n'
    )
    text = "".join(stack + RETRY.format(line=n, url=n) for n in range(40))
    records = read_torch(tmp_path, text)
    assert sum(isinstance(record, ProcessStack) for record in records) == 40
    assert len(of_kind(records, "traceback")) >= 16


def test_ranks_between_are_told_apart(tmp_path: Path) -> None:
    line = "[rank{0}]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    text = line.format(0) * 2000 + line.format(17) + line.format(0) * 2000
    assert {e.rank for e in of_kind(read_torch(tmp_path, text), "cuda_error")} == {0, 17}
    assert {s.rank for s in read_messages(tmp_path, text)} == {0, 17}


@pytest.mark.parametrize("prefix", ["{}: ", "May  1 10:00:{1:02d} {0} python[7]: "])
def test_hosts_between_are_told_apart(tmp_path: Path, prefix: str) -> None:
    rows = [(f"gpu-cluster-node-{n // 40:04d}.example", n % 60) for n in range(64 * 40)]
    text = "".join(prefix.format(*row) + "HIP out of memory. Tried to allocate 2.00 GiB\n" for row in rows)
    assert {s.host for s in read_messages(tmp_path, text)} == {host for host, _ in rows}


def test_codes_between_are_told_apart(tmp_path: Path) -> None:
    line = (
        "node7:35:89 [5] transport/net_ib.cc:2299 NCCL WARN NET/IB: Got completion from peer 10.20.1.12<{}> with "
        "status={} opcode=0 len=0 vendor err 129 (Send)\n"
    )
    often = "".join(line.format(41000 + n, 5) for n in range(500))
    found = read_messages(tmp_path, often + line.format(41022, 12) + often)
    assert [s.line for s in found if "status=12 " in s.ref.quote] == [501]


def test_repetitions_are_counted(tmp_path: Path) -> None:
    text = "".join(f"[rank1]: HIP out of memory. Tried to allocate {n}.00 GiB\n" for n in range(5000))
    found = read_messages(tmp_path, text)
    assert (found[0].line, found[-1].line, found[-1].count) == (1, 5000, 5000)


def test_times_of_what_was_held_back(tmp_path: Path) -> None:
    stamp = "2026-05-01 {:02d}:00:00 [W] forking with Broken pipe; Connection reset by peer [10.0.0.1]:80\n"
    plain = "terminate called after throwing an instance of 'std::system_error'\n"
    text = stamp.format(1) + plain * 2000 + stamp.format(2) + plain
    found = of_kind(read_torch(tmp_path, text), "native_crash")
    assert found[0].after_ns is not None
    assert found[-1].after_ns is not None
    assert found[-1].after_ns - found[0].after_ns == 3600 * 10**9


def test_the_newest_and_the_first_progress(tmp_path: Path) -> None:
    text = "".join(f"2026-05-01 10:{n // 60 % 60:02d}:{n % 60:02d} step {n} loss 1.5\n" for n in range(20_000))
    (found,) = [r for r in read_torch(tmp_path, text) if isinstance(r, Progress)]
    assert found.full
    assert (found.step[0], found.step[-1]) == (0, 19_999)
    assert np.array_equal(found.line, found.step + 1)
    assert np.array_equal(found.step[-progress.KEPT :], np.arange(20_000 - progress.KEPT, 20_000))


def test_progress_of_many_ranks_in_one_file(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}]: step {step} loss 1.5\n" for step in range(200) for rank in range(100))
    (found,) = [r for r in read_torch(tmp_path, text) if isinstance(r, Progress)]
    assert {(found.rank == rank).sum() >= 100 for rank in range(100)} == {True}


def test_rare_progress_is_found_at_the_beginning(tmp_path: Path) -> None:
    text = "step 1 loss 2.5\nstep 2 loss 2.4\n" + "an ordinary line of some program\n" * 60_000
    (found,) = [r for r in read_torch(tmp_path, text) if isinstance(r, Progress)]
    assert found.step.tolist() == [1, 2]
    assert found.line.tolist() == [1, 2]


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "tensor(nan)"])
@pytest.mark.parametrize("words", ["loss: {}", "loss={}", "loss {}", "'loss': {}"])
def test_a_loss_that_is_no_number_far_from_the_end(tmp_path: Path, words: str, value: str) -> None:
    lines = [f"[rank2]: step {n} {words.format(1.5)} level=info\n" for n in range(9000)]
    lines[17] = f"[rank2]: step 17 {words.format(value)} level=info\n"
    (found,) = of_kind(read_torch(tmp_path, "".join(lines)), "loss_nonfinite")
    assert (found.rank, found.step, found.line) == (2, 17, 18)


CHATTER = (
    "Trees [0] 3/-1/-1->2->7 [1] 7/-1/-1->2->3",
    "Channel {n:02d}/0 : 3[3] -> {n}[4] via P2P/CUMEM/read",
    "Channel {n:02d}/0 : 3[3] -> {n}[4] [send] via NET/IB/{n}/GDRDMA",
    "AllReduce: {n} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..7}}",
    "misc/socket.cc:{n} -> 3",
    "socketPollConnect: connect returned Connection refused, retrying ({n}/35) after sleep",
    "NCCL_DEBUG set by environment to INFO",
    "comm 0xabc0 rank 3 nRanks 8 nNodes 1 localRanks 8 localRank 3 MNNVL 0",
)


def test_chatter_is_skimmed_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f"{'[1,2]<stderr>:' * (n % 3 == 0)}node{n % 4}:{100 + n % 4}:{n % 8} [3] NCCL INFO "
        + CHATTER[n * 7 % len(CHATTER)].format(n=n % 50)
        for n in range(12_000)
    ]
    rows[5000] = rows[5001] + rows[5002]
    text = "\n".join(rows).encode() + b"\n"
    quick = scan.scan_bytes(text, "x")
    monkeypatch.setattr(scan, "_WORTH_BULK", 1 << 60)
    slow = scan.scan_bytes(text, "x")
    assert quick.nccl_lines == slow.nccl_lines
    pairs = [sorted(log.processes, key=lambda process: process.label) for log in (quick, slow)]
    for one, other in zip(*pairs, strict=True):
        assert (one.label, one.last_line, one.last_text) == (other.label, other.last_line, other.last_text)
        assert (one.first_line, one.launcher, one.cuda_dev) == (other.first_line, other.launcher, other.cuda_dev)
        assert (one.trails, one.notes, one.env, one.nodes) == (other.trails, other.notes, other.env, other.nodes)
        assert one.transport_counts == other.transport_counts
        assert {t.kind for t in one.transports} == {t.kind for t in other.transports}


def test_dense_noise_takes_little_time(tmp_path: Path) -> None:
    def work(size: int) -> None:
        noisy = "".join(
            f"[rank{n % 8}]: step {n} loss 1.5\n{n}: UserWarning: the connection was reset, error: none\n"
            for n in range(12 * size)
        )
        read_torch(tmp_path, noisy + "".join(RETRY.format(line=1, url=n) for n in range(size)))

    cost.linear(work, 125)


def test_a_flood_of_warnings_is_counted_and_its_ends_are_kept() -> None:
    warning = "node1:7:9 [0] transport/net_ib.cc:{0} NCCL WARN NET/IB: Got completion from peer {0}\n"
    info = "node1:7:8 [0] NCCL INFO Using network IB\nnode1:7:9 [0] NCCL INFO Trees [0] 1/-1/-1->0->2\n"
    other = "node1:8:9 [1] transport/net_ib.cc:5 NCCL WARN something else\n"
    text = info + "".join(warning.format(n) + "an ordinary line\n" * (n % 3) for n in range(40_000)) + other
    text += warning.format(40_000)
    log = scan.scan_bytes(text.encode(), "x")
    one, two = log.processes
    assert (one.warnings_total, two.warnings_total) == (40_001, 1)
    assert one.warnings[0].text.endswith("from peer 0")
    assert one.warnings[-1].text.endswith("from peer 40000")
    assert [w.line for w in one.warnings] == sorted(w.line for w in one.warnings)
    assert one.last_line == text.count("\n")
    assert log.nccl_lines == 40_004


def test_lines_that_look_like_tables_of_failures_are_not_followed_forever(tmp_path: Path) -> None:
    row = "check {} of the shard: FAILED\n" + "an ordinary line of some program\n" * 20
    cost.linear(lambda size: read_torch(tmp_path, "".join(map(row.format, range(size)))), 150)
