"""Known messages are found anywhere in text, with who said them, within bounds of memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from whichrank.evidence.readers import known_messages
from whichrank.model.contracts import Item
from whichrank.records.events.messages import KnownMessage

WARNING = "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"


def read(folder: Path, text: str | bytes, name: str = "job.log") -> list[KnownMessage]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return known_messages.read(Item(path, name, path.stat().st_size, 0)).records


@pytest.mark.parametrize(
    ("prefix", "rank", "pid", "host"),
    [
        ("node7:35:89 [5] misc/ibvwrap.cc:212 ", None, 35, "node7"),
        ("[2026-03-02 10:00:00] node7:35:89 [5] misc/ibvwrap.cc:212 ", None, 35, "node7"),
        ("[1,13]<stderr>:node7:35:89 [5] misc/ibvwrap.cc:212 ", 13, 35, "node7"),
        ("[rank3]: ", 3, None, None),
        ("misc/ibvwrap.cc:212 ", None, None, None),
        ("\x1b[31mnode7:35:89 [5] misc/ibvwrap.cc:212 ", None, 35, "node7"),
    ],
)
def test_whose_it_is(tmp_path, prefix, rank, pid, host):
    (found,) = read(tmp_path, f"first line\n{prefix}{WARNING}\n")
    assert (found.signature, found.line) == ("nccl-ib-memory-registration", 2)
    assert (found.rank, found.pid, found.host) == (rank, pid, host)
    assert found.captures["call"] == "reg_mr"
    assert WARNING.split("WARN ")[1] in found.ref.quote


def test_the_folder_may_name_the_rank(tmp_path):
    (found,) = read(tmp_path, WARNING, "logs/rank5/stderr.log")
    assert found.rank == 5


def test_two_messages_in_one_line(tmp_path):
    line = f"{WARNING}n1:2:3 [0] x.cc:1 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
    assert {s.signature for s in read(tmp_path, line)} == {"nccl-ib-memory-registration", "nccl-duplicate-gpu"}


def test_lines_are_counted_in_big_files(tmp_path):
    filler = b"step 12/1000 loss=2.31 tokens/s=1234 and some more words of an ordinary line\n" * 40_000
    text = filler + WARNING.encode() + b"\n" + filler + b"HIP out of memory. Tried to allocate 2.00 GiB\n"
    assert [(s.signature, s.line) for s in read(tmp_path, text)] == [
        ("nccl-ib-memory-registration", 40_001),
        ("torch-oom", 80_002),
    ]


def test_repetitions_are_bounded_and_the_first_and_last_are_kept(tmp_path):
    lines = "".join(f"[rank{n % 4}]: {WARNING} {n}\n" for n in range(40_000))
    tracemalloc.start()
    found = read(tmp_path, lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 4 * (known_messages.FIRST + known_messages.LAST)
    assert (found[0].line, found[-1].line) == (1, 40_000)
    assert peak < 24 << 20


def test_words_of_people_count_in_short_texts_only(tmp_path):
    words = "It works with NCCL_P2P_DISABLE=1.\n"
    assert [s.signature for s in read(tmp_path, words)] == ["told-p2p-disable-helps"]
    assert read(tmp_path, words + "an ordinary line of a log\n" * 10_000, "long.log") == []
    assert read(tmp_path, f"node7:1:2 [0] NCCL INFO {words}", "nccl.log") == []


def test_code_is_no_evidence_and_of_documents_what_was_printed(tmp_path):
    assert read(tmp_path, f'raise RuntimeError("{WARNING}")\n', "train.py") == []
    assert len(read(tmp_path, WARNING, "notes.md")) == 1, "people paste without a fence"
    assert read(tmp_path, f"The page on errors explains {WARNING}", "notes.md") == []


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"\0" * 100, b"Got completion", b"\n" * 100_000, b"\xc3(" * 5000])
def test_odd_files_are_survived(tmp_path, text):
    read(tmp_path, text)


def test_a_code_that_comes_late_among_lines_that_look_alike_is_seen(tmp_path):
    alike = (
        "node3:4027:5027 [3] net_ib.cc:512 NCCL WARN NET/IB : Got completion from peer 10.0.0.27<427> with status={}"
    )
    lines = [alike.format(f"12 opcode=0 len={number}") for number in range(60)]
    lines.append(alike.format("10 opcode=0 len=7"))
    found = {sighting.signature for sighting in read(tmp_path, "\n".join(lines) + "\n")}
    assert {"nccl-ib-status-12", "nccl-ib-status-10"} <= found
