"""Summaries: the same verdict as from the evidence they were made from, small, and safe to read."""

from __future__ import annotations

import itertools
import lzma
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import whichrank
from tests.evidence.summary import many_ranks
from tests.evidence_at import SHARED
from whichrank.cli.main import run
from whichrank.evidence.summary import dumps, file, smaller, values
from whichrank.evidence.summary.head import MAGIC
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.reduce import reduce
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.events.base import Event
from whichrank.records.nccl import NcclLog
from whichrank.records.network import TcpSocket

SAMPLES = Path(__file__).parents[2] / "samples"
CASES = ("nccl_h200/conditional", "nccl_h200/dataloader_stall", "logs/oom-halved", "logs/two-jobs-one-file")
SS_NAMES = (
    "backoff", "busy", "bytes_acked", "bytes_received", "bytes_sent", "cwnd", "data_segs_in", "data_segs_out",
    "delivery_rate", "dsack_dups", "lastack", "lastrcv", "lastsnd", "lost", "minrtt", "mss", "pacing_rate", "pmtu",
    "reord_seen", "rto", "rtt", "rttvar", "rwnd_limited", "sacked", "sndbuf_limited", "total_retrans", "tries",
    "unacked",
)  # fmt: skip
"""As `ss` calls what it prints of a connection."""
SIMULATOR = SHARED / "tools/simulate_fr.py"


def told(diagnosis):
    verdict = diagnosis.verdict
    return (verdict.category, verdict.cause, verdict.culprits, verdict.victims, round(verdict.confidence, 3))


def unpacked(archive, folder):
    place = folder / archive.partition(".")[0]
    place.mkdir(parents=True)
    subprocess.run(["tar", "xf", SAMPLES / archive, "-C", place], check=True)
    return place


def both(path, folder):
    """From the full evidence and from its summary."""
    made = reduce([path], jobs=1)
    target = folder / "summary.whichrank"
    target.write_bytes(made.data)
    return diagnose([path], jobs=1), diagnose([target], jobs=1), made


def test_some_recorded_cases(tmp_path):
    place = unpacked("recorded_cases.tar.xz", tmp_path)
    for name in CASES:
        full, short, _ = both(place / name, tmp_path)
        assert told(short) == told(full), name


@pytest.mark.bars
@pytest.mark.parametrize("archive", [path.name for path in sorted(SAMPLES.glob("*.tar.*"))])
def test_every_recorded_case(archive, tmp_path):
    place = unpacked(archive, tmp_path)
    for truth in sorted(place.rglob("truth.*")):
        full, short, _ = both(truth.parent, tmp_path)
        assert told(short) == told(full), truth.parent


@pytest.mark.bars
@pytest.mark.skipif(not SIMULATOR.exists(), reason="the simulator is not here")
@pytest.mark.parametrize("fault", ["none", "stuck", "skip", "extra", "swap", "cross", "orphan"])
def test_simulated_jobs(fault, tmp_path):
    for seed in range(43):  # 301 of all faults
        out = tmp_path / f"{seed}"
        command = [sys.executable, SIMULATOR, out, "--tp", "4", "--dp", "4", "--fault", fault, "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            continue  # this fault has no place in this layout
        full, short, made = both(out, tmp_path)
        assert told(short) == told(full), seed
        assert len(made.data) <= 4096 * made.ranks


def test_a_hang_takes_less_than_four_kilobytes_a_rank(tmp_path):
    """A node of a large job with full ring buffers, times of every call different."""
    parts = []
    for rank in range(8):
        one = many_ranks.dump(rank, 4096, 5)
        rows = np.arange(2000) % len(one)
        noise = np.random.default_rng(rank).integers(0, 3_000_000, 2000).cumsum()
        for name in ("group", "call", "seq", "p2p_seq", "state", "retired", "duration_ms"):
            setattr(one, name, getattr(one, name)[rows])
        one.record_id = np.arange(2000, dtype=np.int32)
        one.created_ns = many_ranks.BEGAN + noise
        one.completed_ns = one.created_ns + noise[::-1] % 5_000_000
        parts.append(file.Part(file.Item(Path("x"), one.source, 1, 1), [("flight_recorder", file.Reading([one]))]))
    data = file.pack(file.Summary(parts))
    assert len(data) < 8 * 4096
    found = file.unpack(data, Path("x"), dumps.Tables())
    records = [part.readings[0][1].records[0] for part in found.parts]
    assert all(len(record) >= dumps.LAST and record.capacity_wrapped for record in records)
    assert records[0].groups[0].members is records[7].groups[0].members  # one list for all ranks


def test_what_is_cut_off_keeps_every_group_whole_from_its_first_unfinished_call():
    made = many_ranks.dump(0, 16, 99)
    rows = np.concatenate([np.arange(3), *[np.array([0, 1])] * 400])  # the world's call is long ago, and unfinished
    for name in ("group", "call", "seq", "p2p_seq", "state", "retired", "duration_ms", "created_ns", "completed_ns"):
        setattr(made, name, getattr(made, name)[rows].copy())
    made.record_id = np.arange(len(rows), dtype=np.int32)
    made.state[2], made.retired[2], made.completed_ns[2] = 0, False, 0
    short = dumps.shortened(made)
    assert len(short) == dumps.LAST + 1
    assert short.record_id[0] == 2
    assert short.capacity_wrapped


def test_full_evidence_beside_its_summary_is_read_instead(tmp_path):
    sample = SAMPLES / "flight_recorder/gloo_skip"
    (tmp_path / "s.whichrank").write_bytes(reduce([sample], jobs=1).data)
    together = diagnose([sample, tmp_path / "s.whichrank"], jobs=1)
    assert told(together) == told(diagnose([sample], jobs=1))
    read = [source.path for source in together.coverage.sources if source.quality == "complete"]
    assert len(read) == len(set(read)) == 2


def test_a_quiet_connection_keeps_what_rules_ask_for():
    """Every value of a connection that some rule asks for by name is in a summary."""
    source = Path(whichrank.__file__).parent
    places = [
        source / "timeline/network/paths.py",
        source / "records/network.py",
        *(source / "rules/net_interface").glob("*.py"),
    ]
    asked = {name for path in places for name in re.findall(r'\.number\("(\w+)"\)', path.read_text())}
    connection = asked & set(SS_NAMES)
    assert connection
    assert connection <= smaller.ASKED


def test_values_of_a_connection_come_back():
    known = {"rtt": 12.083, "minrtt": 0.004, "bytes_acked": 636.0, "cwnd": 18.0, "lastack": 0.12345678}
    for queue, sent, ends in itertools.product(
        (0, 7), ({}, {"bytes_sent": 635.0}), ("a:1 b:2", "[::1]:1 [::1]:2", "a b")
    ):
        ref = Ref("s", "line 2", f"ESTAB 0 0 {ends} rtt:12")
        socket = TcpSocket(ref, "ESTAB", "a", 1, "b", 2, queue, values={**known, **sent})
        back = smaller.whole_connection(values.restored(values.plain(smaller.connection(socket))))
        assert back.values == {name: v for name, v in socket.values.items() if queue or name in smaller.ASKED}
        assert back.ref.quote == (f"ESTAB 0 0 {ends} rtt:12" if queue else f"ESTAB 0 0 {ends}")


def test_a_log_of_nccl_keeps_its_calls_without_what_stands_between(tmp_path):
    line = (
        "vm:965:965 [0] NCCL INFO AllReduce: opCount {:x} sendbuff 0x7f recvbuff 0x7f count 4096 datatype 7 op 0 root 0"
    )
    text = "".join(f"{line.format(n)} comm 0x12 [nranks=2] stream (nil)\n{'step ' * 40}{n}\n" for n in range(3000))
    (tmp_path / "nccl.log").write_text(text)
    made = reduce([tmp_path / "nccl.log"], jobs=1)
    assert len(made.data) < 6000
    found = file.unpack(made.data, Path("x"), dumps.Tables())
    [log] = [
        r for part in found.parts for _, reading in part.readings for r in reading.records if isinstance(r, NcclLog)
    ]
    [calls] = log.calls
    assert calls.total == 3000
    assert calls.calls.count.tolist() == [4096] * len(calls.kept)
    assert f"opCount {2999:x} " in calls.quote(-1)


def test_a_summary_of_an_earlier_version_is_read():
    """The first summaries had one record for all kinds of events, and another for known messages."""

    def events(data):
        parts = file.unpack(data, Path("x"), dumps.Tables()).parts
        return [
            msgspec.structs.replace(record, after_ns=None)  # theirs was taken behind a traceback
            for part in parts
            for _, reading in part.readings
            for record in reading.records
            if isinstance(record, Event)
        ]

    earlier = events((SAMPLES / "earlier_summary.whichrank").read_bytes())
    assert earlier == events(reduce([SAMPLES / "torch_output/exception"], jobs=1).data)
    assert {event.kind for event in earlier} == {
        "collective_stack", "comm_init", "cuda_error", "group_init", "group_teardown", "known_message", "nccl_error",
        "peer_closed", "torch_env", "traceback", "watchdog_progress",
    }  # fmt: skip


WORDS = "Our switch drops pause frames: PFC is off on two ports and the RoCE traffic class has no priority.\n"
CHATTER = "".join(f"put {'bcdfghkm'[n % 8] * (n % 40)} aside {n}\n" for n in range(4000))


@pytest.mark.parametrize("text", [WORDS, WORDS + CHATTER], ids=["small", "large"])
def test_where_only_words_tell_they_are_kept(text, tmp_path):
    (tmp_path / "note").mkdir()
    (tmp_path / "note/ticket.txt").write_text(f"It got slow after the move.\n{text}")
    full, short, made = both(tmp_path / "note", tmp_path)
    assert told(short) == told(full)
    assert [(f.code, f.evidence) for f in short.findings] == [(f.code, f.evidence) for f in full.findings]
    assert "CODE210" in full.coverage.found
    assert len(made.data) < 8192


def test_where_dumps_tell_no_large_text_is_kept(tmp_path):
    place = tmp_path / "job"
    shutil.copytree(SAMPLES / "flight_recorder/gloo_skip", place)
    (place / "job.log").write_text(WORDS + CHATTER)
    parts = file.unpack(reduce([place], jobs=1).data, Path("x"), dumps.Tables()).parts
    assert not any(part.text for part in parts)
    assert all(part.item.read() == b"" for part in parts), "never the bytes of the summary itself"


def test_two_nodes_are_told_apart(tmp_path):
    log = tmp_path / "job" / "output.log"
    log.parent.mkdir()
    log.write_text("[rank3]: RuntimeError: CUDA error: out of memory\n")
    for node in ("a1", "b2"):
        (tmp_path / f"{node}.whichrank").write_bytes(reduce([log.parent], node=node, jobs=1).data)
    found = diagnose([tmp_path / "a1.whichrank", tmp_path / "b2.whichrank"], jobs=1)
    assert {"nodes/a1/output.log", "nodes/b2/output.log"} <= {source.path for source in found.coverage.sources}


def damaged():
    good = reduce([SAMPLES / "flight_recorder/gloo_skip"], jobs=1).data
    document = msgspec.msgpack.decode(lzma.decompress(good[len(MAGIC) :]))

    def packed(change):
        copy = msgspec.msgpack.decode(msgspec.msgpack.encode(document))
        change(copy)
        return MAGIC + lzma.compress(msgspec.msgpack.encode(copy))

    def in_dump(**changes):
        return packed(lambda d: d["parts"][0]["readings"][0]["records"][0][1].update(changes))

    yield good[:-20]
    yield MAGIC + b"nothing"
    yield MAGIC + lzma.compress(bytes(1 << 20))
    yield packed(lambda d: d.update(parts=7))
    yield packed(lambda d: d["parts"][0]["readings"][0]["records"].append(["os.system", {"x": 1}]))
    yield packed(lambda d: d["parts"][0]["readings"][0]["records"].append(["LogEvent", {"kind": 7}]))
    yield in_dump(count=1 << 40)
    yield in_dump(groups=[999])
    yield in_dump(rank="zero")
    yield in_dump(columns=[["<i8", 0, b""]] * 10)
    bomb = msgspec.msgpack.encode([0, "0", "", [0, 1 << 20, 1] * 100_000])
    yield packed(lambda d: d.update(shared=[bomb] * len(d["shared"])))


def test_a_damaged_or_hostile_summary_costs_itself(tmp_path):
    for number, data in enumerate(damaged()):
        (tmp_path / "s.whichrank").write_bytes(data)
        found = diagnose([tmp_path], jobs=1)
        assert any(source.quality in ("unusable", "partial") for source in found.coverage.sources), number


def test_only_records_come_back():
    for value in (["Popen", {}], [1], "x", ["LogEvent", {"kind": "x", "data": {}}], ["traceback", {"type": 7}]):
        with pytest.raises(UnreadableError):
            values.restored(value)


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert run(["reduce", str(tmp_path)]) == 2
    assert "there is no evidence in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, capsys):
    out = tmp_path / "node1.whichrank"
    assert run(["reduce", str(SAMPLES / "flight_recorder/gloo_skip"), "--node", "node1", "--out", str(out)]) == 0
    assert "KB per rank" in capsys.readouterr().err
    assert out.read_bytes().startswith(MAGIC)


@pytest.mark.bars
def test_100_000_ranks_within_a_minute_and_two_gigabytes(tmp_path):
    many_ranks.write(tmp_path, 100_000, 33_333)
    code = (
        "import json, resource, sys, time; from pathlib import Path\n"
        "from whichrank.flows.diagnose.pipeline import diagnose\n"
        "began = time.monotonic(); found = diagnose([Path(sys.argv[1])]).verdict\n"
        "print(json.dumps([time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "
        "list(found.culprits.ranks)]))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    took, memory, ranks = msgspec.json.decode(done.stdout)
    assert ranks == [33_333]
    assert memory < 2 << 20
    assert took < 60, f"{took:.0f} s"
