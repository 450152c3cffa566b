"""The decoder in C against the one in Python: what it takes it reads the same, and all else it leaves alone."""

from __future__ import annotations

import pickle
import random
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evidence import building
from tests.evidence.pickle.damaging import any_of, made
from tests.evidence.readers.torchlike import dump, torch_pickle
from whichrank.evidence.pickle import native
from whichrank.evidence.readers import flight_recorder
from whichrank.evidence.readers.flight_recorder.columns import NATIVE
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError

SAMPLES = Path(__file__).parents[2] / "samples" / "flight_recorder"
PICKLES = sorted(path for path in SAMPLES.rglob("fr_*") if path.suffix != ".json")

pytestmark = pytest.mark.skipif(not building.can_build(), reason="no C compiler, or no headers of Python")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library of this checkout, whatever is installed."""
    return building.load(building.NATIVE, building.build(building.NATIVE, tmp_path_factory.mktemp("native"), "-O2"))


def reading(library, data, path):
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: library)
        try:
            return flight_recorder.read(Item(path, "fr_3", len(data), 0))
        except UnreadableError as error:
            return error


def assert_same(one, other):
    if isinstance(one, UnreadableError) or isinstance(other, UnreadableError):
        assert repr(one) == repr(other)
        return
    assert (one.quality, one.note) == (other.quality, other.note)
    for name in one.records[0].__struct_fields__:
        a, b = getattr(one.records[0], name), getattr(other.records[0], name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, name
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), name
        else:
            assert a == b, name


@pytest.mark.parametrize("path", PICKLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_dumps_are_taken_and_read_the_same(built, path, tmp_path):
    data = path.read_bytes()
    assert built.decode(data, *NATIVE) is not None
    assert_same(reading(built, data, tmp_path / "fr"), reading(None, data, tmp_path / "fr"))


@pytest.mark.parametrize("writer", ["torch", 2, 4, 5])
def test_records_that_repeat_are_taken_by_comparison(built, writer, tmp_path):
    top, shared = dump(700)
    data = torch_pickle(top, shared) if writer == "torch" else pickle.dumps(top, writer)
    _, examples, lines, _, _ = built.decode(data, *NATIVE)
    assert len(lines) == 700 * 4
    assert len(examples) < 60
    assert_same(reading(built, data, tmp_path / "fr"), reading(None, data, tmp_path / "fr"))


@given(number=st.integers(0, 2**64))
@settings(max_examples=250)
def test_both_read_the_same_whatever_the_file_holds(built, number, tmp_path_factory):
    data = any_of(random.Random(number))
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    assert_same(reading(built, data, path), reading(None, data, path))


@pytest.mark.bars
def test_both_read_the_same_for_long(built, tmp_path):
    for number in range(30_000):
        data = any_of(random.Random(number))
        try:
            assert_same(reading(built, data, tmp_path / "fr"), reading(None, data, tmp_path / "fr"))
        except AssertionError as error:
            raise AssertionError(f"any_of(random.Random({number}))") from error


HOSTILE = {
    "a length beyond the end": b"\x80\x02}(X\x07\x00\x00\x00entries](X\xff\xff\xff\xffab",
    "eight bytes of length": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.",
    "a memo number of four billion": b"\x80\x02]r\xff\xff\xff\xff.",
    "marks without end": b"\x80\x02" + b"(" * 100_000 + b".",
    "lists in lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "tuples in tuples": b"\x80\x02)" + b"\x85" * 200_000 + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "entries that hold themselves": b"\x80\x02}(X\x07\x00\x00\x00entries]q\x00(h\x00h\x00eu.",
    "a billion laughs": b"\x80\x02]q\x00" + b"".join(b"](" + b"h%c" % n * 9 + b"eq%c" % (n + 1) for n in range(60))
    + b".",
    "steps without end": b"\x80\x02](" + b"N" * 5_000_000 + b"e.",
    "a class": b"\x80\x02cos\nsystem\n.",
    "nothing": b"\x80",
    "a mark below the stack": b"\x80\x02(e.",
    "items of nobody": b"\x80\x02(K\x01K\x02u.",
    "an int of 17 bytes": b"\x80\x02\x8a\x11" + b"\1" * 17 + b".",
    "one entry a million times": b"\x80\x02}(X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameN" + b"uq\x00"
    + b"h\x00" * 1_000_000 + b"eu.",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_read_alike(built, name, tmp_path):
    data = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    built.decode(data, *NATIVE)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    assert_same(reading(built, data, tmp_path / "fr"), reading(None, data, tmp_path / "fr"))


def test_every_prefix_of_a_dump_is_left_to_the_other_decoder(built):
    top, shared = dump(3)
    data = torch_pickle(top, shared)
    assert built.decode(data, *NATIVE) is not None
    assert all(built.decode(data[:end], *NATIVE) is None for end in range(len(data)))


def test_a_number_may_be_written_in_any_width(built, tmp_path):
    top, shared = dump(60)
    for number, entry in enumerate(top["entries"]):
        entry["record_id"] = number
        entry["collective_seq_id"] = [3, 300, 70_000, -5, 2**40][number % 5]
        entry["duration_ms"] = [1.5, 3, None][number % 3]
    data = torch_pickle(top, shared)
    found = reading(built, data, tmp_path / "fr")
    assert_same(found, reading(None, data, tmp_path / "fr"))
    assert found.records[0].seq[:4].tolist() == [3, 300, 70_000, -5]


def test_a_memo_number_that_changes_its_meaning_is_left_to_the_other_decoder(built):
    text = b"X\x01\x00\x00\x00a"
    assert built.decode(b"\x80\x02](" + text + b"q\x00" + text + b"q\x00e.", *NATIVE) is None


def test_wrong_arguments_are_refused(built):
    for arguments in [
        (),
        (b"", "m", (), (), (), ()),
        ("", "m", (), (), (), (), {}),
        (b"", "m", ("x",) * 17, (), (), (), {}),
    ]:
        with pytest.raises((TypeError, ValueError)):
            built.decode(*arguments)
    with pytest.raises(TypeError):
        built.decode(b"", "m", (b"bytes",), (), (), (), {})


def test_what_was_read_before_changes_nothing(built):
    """Arrays are kept from one file for the next, which may be of another size and have other columns."""
    names, columns = {}, [NATIVE[1], NATIVE[1][:2], NATIVE[1][4:]]
    files = [torch_pickle(*dump(count)) for count in (700, 3, 60)] + [b"\x80\x02](", pickle.dumps([1, 2], 2)]

    def found(data, ints):
        return built.decode(data, NATIVE[0], ints, *NATIVE[2:5], {})

    for data in files:
        for ints in columns:
            names[data, ints] = found(data, ints)
    assert names[files[0], columns[1]] is not None
    dice = random.Random(3)
    tasks = [(dice.choice(files), dice.choice(columns)) for _ in range(200)]
    with ThreadPoolExecutor(6) as pool:
        again = list(pool.map(lambda task: found(*task), tasks))
    assert [names[task] for task in tasks] == again


def test_memory_is_given_back(built):
    samples = [any_of(random.Random(number)) for number in range(60)] + [made(random.Random(1), 400)]

    def turn():
        for data in samples:
            built.decode(data, *NATIVE)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    for _ in range(20):
        turn()
    before = resident()
    for _ in range(100):
        turn()
    assert resident() - before < 4 << 20


def test_a_library_of_another_version_is_not_used(built, monkeypatch):
    assert built.VERSION == native._VERSION
    monkeypatch.setitem(sys.modules, "whichrank.evidence.pickle._native", built)
    monkeypatch.delenv("WHICHRANK_NATIVE", raising=False)
    monkeypatch.setattr("whichrank.evidence.pickle._native", built, raising=False)
    native.library.cache_clear()
    assert native.library() is built
    monkeypatch.setattr(native, "_VERSION", built.VERSION + 1)
    native.library.cache_clear()
    assert native.library() is None
    native.library.cache_clear()
    monkeypatch.undo()


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("WHICHRANK_NATIVE", "0")
    native.library.cache_clear()
    assert native.library() is None
    native.library.cache_clear()


@pytest.mark.bars
def test_under_the_address_and_undefined_behaviour_sanitizers(tmp_path):
    code = (
        "import random; from tests.evidence.pickle.damaging import any_of\n"
        "from tests.evidence.pickle.test_native import HOSTILE, NATIVE, PICKLES\n"
        "samples = [*HOSTILE.values(), *(path.read_bytes() for path in PICKLES)]\n"
        "samples += [data[:end] for data in samples[-2:] for end in range(0, min(len(data), 20000), 3)]\n"
        "[built.decode(data, *NATIVE) for data in samples]\n"
        "[built.decode(any_of(random.Random(n)), *NATIVE) for n in range(8000)]"
    )
    building.run_sanitized(building.NATIVE, tmp_path, code)
