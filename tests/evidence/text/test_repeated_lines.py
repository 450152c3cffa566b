"""Lines that look alike: told in C as in Python, the first and the last of them read."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.evidence import building
from whichrank.evidence.text import repeated_lines, words
from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.native import library
from whichrank.evidence.text.repeated_lines import Held, Often, key_of, keys
from whichrank.evidence.text.words import places_of

WRITTEN = [
    b"",
    b"rank 3: 1024 batches",
    b"rank 4: 1024 batches",
    b'[rank3]: File "a.py", line 3',
    b"2026-05-01 10:00:00,123 node1 step 4 status=12",
    b"2026-05-01 10:00:01,123 node1 step 9 status=12",
    b"2026-05-01 10:00:01,123 node2 step 9 status=13",
    b"[2026-05-01T10:00:01.5Z] x",
    b"2026-05-01 10:00 short",
    b"May  1 10:00:00 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=123",
    b"May  1 10:00:00 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=123",
    b"node1:4001:5001 [1] NCCL INFO x",
    b"node1:4002:5001 [1] NCCL INFO x",
    b"train.py:33: UserWarning: old",
    b"train.py:34: UserWarning: old",
    b"errno   112 error code abc 7 signal\t9 GPU 3 mlx5_1 Rank=8 pid: 9 exitcode: -9",
    b"status without a number within twenty bytes of it 5",
    b"rank rank 5 rrank55",
    b"x" * 600 + b" rank 3",
    b"\xff\xfe caf\xc3\xa9 rank\xa05",
]
PIECES = sorted({piece for line in WRITTEN for word in line.split(b" ") for piece in (word, word + b" ")})


def chunk_of(lines: list[bytes]) -> Chunk:
    text = b"".join(line + b"\n" for line in lines)
    return Chunk(bytearray(text + bytes(PADDING)), len(text), 0, 1)


def shuffled(dice: random.Random) -> bytes:
    """A line of pieces of others, with other digits."""
    pieces = [piece for line in dice.choices(WRITTEN, k=2) for piece in line.split(b" ")]
    line = b" ".join(dice.choices(pieces, k=dice.randrange(1, 9)))
    return bytes(dice.choice(b"0123456789") if chr(letter).isdigit() else letter for letter in line)


def recorded() -> list[bytes]:
    logs = sorted((ROOT / "tests/samples").rglob("*.log"))
    return [line for path in logs for line in islice(path.read_bytes().split(b"\n"), 400)]


needs_library = pytest.mark.skipif(library() is None, reason="the library in C was not built")


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, what is asked for is done in Python."""

    def switch() -> None:
        for module in (repeated_lines, words):
            monkeypatch.setattr(module, "library", lambda: None)

    return switch


def same_groups(some: list[int], others: list[int]) -> bool:
    """Whether two lists of numbers tell the same apart."""
    return len(set(zip(some, others, strict=True))) == len(set(some)) == len(set(others))


@needs_library
@pytest.mark.parametrize("seed", range(5))
def test_the_looks_of_lines_in_c_are_those_in_python(seed: int, in_python: Callable[[], None]) -> None:
    dice = random.Random(seed)
    lines = [*WRITTEN, *recorded(), *(shuffled(dice) for _ in range(3000))]
    chunk = chunk_of(lines)
    found, single = keys(chunk, chunk.index(chunk.starts)).tolist(), [key_of(line) for line in lines]
    assert found == single
    in_python()
    assert same_groups(found, [key_of(line) for line in lines])


@needs_library
@pytest.mark.parametrize("seed", range(5))
def test_the_looks_of_messages_of_several_lines_in_c_are_those_in_python(
    seed: int, in_python: Callable[[], None]
) -> None:
    dice = random.Random(seed)
    texts = [b"\n".join(dice.choices(WRITTEN[:8] + WRITTEN[9:11] + WRITTEN[15:18], k=2)) for _ in range(3000)]
    texts += [b"status\n5", b"status\n6", b"Xid (0\n): 3", b"Xid (0\n): 4", b"rank\n5", b"rank\n6", b"\n\nrank 5"]
    told = [dice.choice((None, len(text) // 2, len(text), 0)) for text in texts]
    found = list(map(key_of, texts, told))
    in_python()
    assert same_groups(found, list(map(key_of, texts, told)))


@needs_library
def test_more_than_the_text_is_told_of_nothing() -> None:
    for told in (-1, 4):
        with pytest.raises(ValueError, match="more than the text"):
            key_of(b"abc", told)


@needs_library
@pytest.mark.parametrize("literal", [b"NCCL ", b" via ", b"ank", b"aa", b"a", b"aba", b"\n", b"nowhere"])
def test_the_places_of_a_literal_in_c_are_those_in_python(literal: bytes, in_python: Callable[[], None]) -> None:
    dice = random.Random(1)
    texts = [
        b"",
        literal,
        literal * 3,
        literal[:-1],
        b"x" + literal,
        b"NCCL NCCL  via rank",
        *map(shuffled, [dice] * 50),
    ]
    texts += [bytes(dice.choices(b"ab", k=dice.randrange(40))) for _ in range(200)]
    # What stands behind the text does not count, though it may go on there.
    chunks = [Chunk(bytearray(text + literal + bytes(PADDING)), len(text), 0, 1) for text in texts if text]
    found = [places_of(chunk, literal).tolist() for chunk in chunks]
    assert any(found) or literal == b"nowhere"
    in_python()
    assert found == [places_of(chunk, literal).tolist() for chunk in chunks]


@needs_library
@pytest.mark.parametrize(("size", "rare"), [(-1, 0), (5, 0), (4, 2), (4, -1)])
def test_places_outside_of_a_text_are_refused(size: int, rare: int) -> None:
    native = library()
    assert native is not None
    with pytest.raises(ValueError, match="outside"):
        native.places(bytearray(b"abcd"), size, b"ab", rare)
    assert native.places(bytearray(b"a"), 1, b"ab", 1) == b""


def held(number: int) -> Held:
    return Held(number, b"line %d" % number, None, ())


def test_the_last_lines_of_a_look_wait_for_the_end() -> None:
    often = Often(3)
    assert [often.holds(held(number), 7) for number in range(5)] == [False, False, False, True, True]
    chunk = Chunk(bytearray(b"a\nb\nc\nd\ne\n" + bytes(PADDING)), 10, 100, 10)
    assert often.pass_over([7, 8, 7, 7, 7], chunk, np.arange(5), None).tolist() == [1]
    assert [line.number for line in often.held()] == [12, 13, 14]
    assert often.held()[-1].text_in(io.BytesIO(bytes(100) + b"a\nb\nc\nd\ne\n")) == b"e"
    assert often.dropped == often.held()[0].skipped == 3


def test_looks_that_say_the_same_wait_together() -> None:
    often, said = Often(3), [object()]
    for key in (1, 2):
        often.holds(held(key), key)
        often.settle(said)
    chunk = Chunk(bytearray(b"a\nb\nc\nd\ne\nf\n" + bytes(PADDING)), 12, 0, 10)
    assert often.pass_over([1, 2, 1, 2, 1, 3], chunk, np.arange(6), None).tolist() == [5]
    assert [(line.number, line.said is said) for line in often.held()] == [(12, True), (13, True), (14, True)]


@needs_library
@pytest.mark.fuzz
@given(
    st.lists(
        st.lists(st.sampled_from(PIECES) | st.binary(max_size=40), max_size=12).map(b"".join), min_size=1, max_size=12
    )
)
def test_any_bytes_look_the_same_in_c_and_in_python(lines: list[bytes]) -> None:
    lines = [line.replace(b"\n", b" ") for line in lines]
    chunk = chunk_of(lines)
    found = keys(chunk, chunk.index(chunk.starts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_lines, "library", lambda: None)
        assert same_groups(found, [key_of(line) for line in lines])


@pytest.mark.skipif(not building.can_build(), reason="no C compiler, or no headers of Python")
@pytest.mark.bars
def test_under_the_sanitizers(tmp_path: Path) -> None:
    """Each line ends where its memory does: a look behind it is seen."""
    code = (
        "import random, struct; from tests.evidence.text.test_repeated_lines import WRITTEN, recorded, shuffled\n"
        "rng = random.Random(7)\n"
        "lines = [*WRITTEN, *recorded(), *(shuffled(rng) for _ in range(20000))]\n"
        "lines += [rng.randbytes(rng.randrange(700)) for _ in range(5000)]\n"
        "for line in lines:\n"
        "    for end in {len(line), rng.randrange(len(line) + 1)}:\n"
        "        built.looks(bytearray(line[:end]), struct.pack('q', 0), struct.pack('q', end))\n"
        "for begin, end in ((-1, 3), (2, 1), (0, 9), (5, 1 << 62)):\n"
        "    try:\n"
        "        built.looks(bytearray(b'rank 3'), struct.pack('q', begin), struct.pack('q', end))\n"
        "    except ValueError:\n"
        "        continue\n"
        "    raise AssertionError((begin, end))"
    )
    building.run_sanitized(building.LOOKS, tmp_path, code)
