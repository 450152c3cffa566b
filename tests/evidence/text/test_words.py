"""Words are found wherever they stand in big text, with the accelerator and without it, and nothing else is."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.evidence import building
from whichrank.evidence.readers import known_messages, torch_output
from whichrank.evidence.text import chunks, shared_pass, words
from whichrank.evidence.text.chunks import CHUNK, Chunk, Chunks, Decoded
from whichrank.evidence.text.native import library
from whichrank.evidence.text.words import Automaton, Engine, Native, Plain, Words
from whichrank.facts.messages import KNOWN, REPORT, recognise, signatures
from whichrank.model.contracts import Item
from whichrank.records.events.base import Event
from whichrank.records.events.messages import KnownMessage

needs_library = pytest.mark.skipif(library() is None, reason="the library in C was not built")
ALL = sorted(torch_output.Listener.words | set(KNOWN.anchors))
NOISE = (
    b"2026-05-01 08:00:01,871 - INFO - dataset.loader - loaded /mnt/data/tokens/e2895ced/part-000002.tar (7484 items)",
    b"[rank3]: step 12 loss 9.0696 lr 3.0e-04 tok/s 41501.0",
    b"gpu-node-000:41051:41951 [3] NCCL INFO Trees [0] 3/-1/-1->2->7 [1] 7/-1/-1->2->3",
    (
        b"gpu-node-000:41051:41951 [3] NCCL INFO AllReduce: opCount 4 sendbuff 0x7f2a00003000 recvbuff 0x7f2a00003200 "
        b"count 16385 datatype 7 op 0 root 0 comm 0x7f00c8a1e2f0 [nranks=8] stream 0x7a0010"
    ),
    b"Train:   1%|#        | 10/1000 [00:10<04:10,  3.99it/s]\rTrain:   1%|#        | 11/1000 [00:10<04:10,  3.99it/s]",
    b"/usr/lib/python3/site-packages/torch/utils/checkpoint.py:61: UserWarning: None of the inputs have requires_grad",
    "naïve résumé ███ 日本".encode(),
    b"",
)


@pytest.fixture(params=[Plain, Automaton, Native])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Engine]]:
    """All ways to find words, each used by all readers."""
    if request.param is Automaton:
        pytest.importorskip("hyperscan")
    if request.param is Native and library() is None:
        pytest.skip("the library in C was not built")
    monkeypatch.setattr(words, "_best", request.param)
    shared_pass.finder.cache_clear()
    shared_pass._common_finder.cache_clear()
    yield request.param
    shared_pass.finder.cache_clear()
    shared_pass._common_finder.cache_clear()


def found_in(text: bytes, literals: list[bytes], engine: type[Engine], size: int = CHUNK) -> list[tuple[int, bytes]]:
    finder = Words(literals, engine)
    pieces = Chunks(io.BytesIO(text), size)
    return [(chunk.offset + at, word) for chunk in pieces for at, word in finder.find(chunk)]


@needs_library
def test_lines_end_where_they_do_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    for _ in range(200):
        text = bytes(dice.choices(b"ab\n\r ", k=dice.randrange(1, 300)))
        size = dice.randrange(len(text) + 1)
        chunk = Chunk(bytearray(text), size, 0, 1)
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "library", lambda: None)
            plain = Chunk(bytearray(text), size, 0, 1)
        assert chunk.ends.tolist() == plain.ends.tolist()
        assert chunk.starts.tolist() == plain.starts.tolist()


def by_hand(text: bytes, literals: list[bytes]) -> list[tuple[int, bytes]]:
    found = []
    for literal in literals:
        at = text.find(literal)
        while at >= 0:
            found.append((at, literal))
            at = text.find(literal, at + 1)
    return sorted(found)


def test_all_words_at_all_places(engine: type[Engine]) -> None:
    dice = random.Random(1)
    lines = [literal for literal in ALL if b"\n" not in literal for _ in range(3)] + [*NOISE] * 40
    dice.shuffle(lines)
    text = b"".join(b"x" * dice.randrange(6) + line + b" " * dice.randrange(4) + b"\n" for line in lines)
    assert found_in(text, ALL, engine) == by_hand(text, ALL)
    assert found_in(text, ALL, engine, 1 << 13) == by_hand(text, ALL)


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"Killed", b"Killed\n", b"x(rank=", b"=nan", b"\0" * 9, b"RAM" * 3])
def test_short_texts(engine: type[Engine], text: bytes) -> None:
    literals = [*ALL, b"RAM", b"a", *KNOWN.words]
    assert found_in(text, sorted(set(literals)), engine) == by_hand(text, sorted(set(literals)))


def test_any_letters(engine: type[Engine]) -> None:
    dice = random.Random(2)
    literals = sorted({bytes(dice.choices(b"abAB ", k=dice.randrange(1, 12))) for _ in range(60)})
    text = b"".join(bytes(dice.choices(b"abAB c", k=dice.randrange(90))) + b"\n" for _ in range(300))
    assert found_in(text, literals, engine) == by_hand(text, literals)


def noisy(planted: list[bytes], size: int) -> tuple[bytes, dict[int, bytes]]:
    """The lines spread over noise, some of them around the borders of chunks; and the number of each."""
    dice = random.Random(3)
    out, places, filled = [], {}, 0
    step = size // (len(planted) + 1)
    for number, line in enumerate(planted, 1):
        # Every third one ends just behind the border of a chunk, or begins just before it.
        goal = step * number
        if number % 3 == 0:
            goal = goal // CHUNK * CHUNK + CHUNK - dice.randrange(len(line) + 2)
        while filled + 200 < goal:
            out.append(dice.choice(NOISE))
            filled += len(out[-1]) + 1
        if 0 < goal - filled < 400:
            out.append(b"." * (goal - filled - 1))
            filled = goal
        out.append(line)
        filled += len(line) + 1
        places[len(out)] = line
    return b"\n".join(out) + b"\n", places


def test_planted_messages_are_found_in_a_large_noisy_file(engine: type[Engine], tmp_path: Path) -> None:
    shapes = [(s, example) for s in signatures().values() if s.library != REPORT for example in s.examples]
    text, places = noisy([example.encode() for _, example in shapes], 6 * CHUNK)
    path = tmp_path / "job.log"
    path.write_bytes(text)
    sightings: list[KnownMessage] = known_messages.read(Item(path, path.name, len(text), 0)).records
    found = {(s.line, s.signature) for s in sightings}
    expected = {
        (number, signature.id)
        for number, line in places.items()
        for signature, _ in recognise(line.decode())
        if signature.library != REPORT and signature.role != "harmless"  # a harmless line alone is passed over
    }
    assert expected - found == set()
    assert {line for line, _ in found} <= set(places)


def test_planted_events_are_found_in_a_large_noisy_file(engine: type[Engine], tmp_path: Path) -> None:
    planted = [
        (
            b"[rank5]:[E501 10:00:00.000000001 ProcessGroupNCCL.cpp:683] [Rank 5] Watchdog caught collective operation "
            b"timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=60000) ran for 60011 ms"
        ),
        (
            b"Traceback (most recent call last):\n"
            b'  File "/job/train.py", line 118, in <module>\n'
            b"    loss = model(batch)\n"
            b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
        ),
        b"/bin/bash: line 1: 12345 Killed                  python train.py",
        b"free(): invalid pointer",
        b"[rank2]: step 7 loss nan",
        b"slurmstepd: error: *** STEP 12.0 ON node7 CANCELLED AT 2026-05-01T10:00:00 DUE TO TIME LIMIT ***",
    ] * 4
    text, _ = noisy(planted, 5 * CHUNK)
    path = tmp_path / "job.log"
    path.write_bytes(text)
    events = [r for r in torch_output.read(Item(path, path.name, len(text), 0)).records if isinstance(r, Event)]
    lines = text.split(b"\n")
    assert {event.kind for event in events} == {
        "watchdog_timeout", "traceback", "cuda_error", "native_crash", "loss_nonfinite", "job_ended",
    }  # fmt: skip
    assert [e.type for e in events if e.kind == "traceback"] == ["RuntimeError"] * 4
    assert sum(e.kind == "native_crash" for e in events) == 8
    for event in events:
        words_of_it = event.ref.quote.split(": ")[-1].encode()
        assert any(words_of_it in line for line in lines[event.line - 1 : event.line + 3])


def test_chunks_are_whole_lines() -> None:
    text = b"".join(b"line %d\n" % n for n in range(5000)) + b"cut"
    pieces = Chunks(io.BytesIO(text), 4096)
    seen = [(chunk.first, bytes(chunk.view[: chunk.size])) for chunk in pieces]
    assert b"".join(part for _, part in seen) == text + b"\n"
    assert pieces.cut
    assert len(seen) > 10
    assert all(part.startswith(b"line %d\n" % (first - 1)) for first, part in seen[:-1])


def test_a_line_longer_than_a_chunk_keeps_its_number() -> None:
    text = b"first\n" + b"x" * 10_000 + b"\nlast\n"
    seen = [(chunk.first, chunk.breaks) for chunk in Chunks(io.BytesIO(text), 4096)]
    assert seen == [(1, 1), (2, 0), (2, 0), (2, 2)]


def test_a_bar_without_line_ends_is_cut_at_its_redrawings() -> None:
    text = b"".join(b"\rTrain: %d%%" % n for n in range(3000))
    pieces = [bytes(chunk.view[: chunk.size]) for chunk in Chunks(io.BytesIO(text), 4096)]
    assert all(piece.endswith(b"\r") for piece in pieces[:-1])
    assert b"".join(pieces) == text + b"\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read_as_utf_8(encoding: str) -> None:
    text = "größe 日本 😀 loss\n" * 9000
    pieces = Chunks(Decoded(io.BytesIO(text.encode(encoding)), encoding), 4096)
    assert b"".join(bytes(chunk.view[: chunk.size]) for chunk in pieces).decode() == text


@needs_library
@pytest.mark.parametrize(
    ("literals", "shown"),
    [
        ([b""], [b""]),
        ([b"abcdefg"], [b""]),
        ([b"abcdefg"], [b"\0\1\2\4"]),
        ([b"abcdefg"], [b"\4\1\2\3"]),
        ([b"abcd"], [b"\1\0"]),
        ([b"abcd"], [b"\0\3"]),
        ([b"abc"], [b"\0"]),
        ([b"abc"], []),
        ([1], [b""]),
    ],
)
def test_bytes_that_are_not_of_a_literal_are_refused(literals: list[bytes], shown: list[bytes]) -> None:
    with pytest.raises((ValueError, TypeError)):
        cast("Any", library()).literals(literals, shown)


@pytest.mark.skipif(not building.can_build(), reason="no C compiler, or no headers of Python")
@pytest.mark.bars
def test_under_the_sanitizers(tmp_path: Path) -> None:
    """Each text ends where its memory does: a look behind it is seen."""
    code = (
        "import random, struct; from tests.evidence.text.test_words import ALL, NOISE\n"
        "from whichrank.evidence.text.words import _shown\n"
        "dice = random.Random(7)\n"
        "words = sorted({*ALL, b'RAM', b'a', b'IB', b'loss', b'nan'})\n"
        "some = [words, *([[w for w in words if len(w) in sizes] for sizes in (range(4, 7), range(1, 4), (7,))])]\n"
        "finders = [(chosen, built.literals(chosen, [_shown(word) for word in chosen])) for chosen in some]\n"
        "for _ in range(300):\n"
        "    text = b''.join(dice.choices([*words, *NOISE, b'x'], k=dice.randrange(6)))[:dice.randrange(300)]\n"
        "    for chosen, finder in finders:\n"
        "        packed = built.find(finder, bytearray(text), len(text))\n"
        "        found = {value for (value,) in struct.iter_unpack('q', packed)}\n"
        "        assert found == {at << 16 | number for number, word in enumerate(chosen) for at in range(len(text))\n"
        "                         if text.startswith(word, at)}\n"
        "        span = struct.pack('q', 0), struct.pack('q', len(text))\n"
        "        assert built.within(finder, bytearray(text), *span) == bytes([bool(found)])\n"
        "    try:\n"
        "        built.within(finder, bytearray(text), struct.pack('q', 0), struct.pack('q', len(text) + 1))\n"
        "    except ValueError:\n"
        "        continue\n"
        "    raise AssertionError(text)"
    )
    building.run_sanitized(building.LOOKS, tmp_path, code)
