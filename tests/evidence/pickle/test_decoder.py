"""The decoder against CPython's own on trusted data, and what it makes of files that end early."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evidence.readers.torchlike import dump, torch_pickle
from whichrank.evidence.pickle.decoder import decode
from whichrank.evidence.pickle.machine import Limits
from whichrank.evidence.pickle.repeats import Site
from whichrank.evidence.readers.flight_recorder.walked import SHAPE
from whichrank.model.errors import UnreadableError

SAMPLES = Path(__file__).parents[2] / "samples" / "flight_recorder"
PICKLES = sorted(path for path in SAMPLES.rglob("fr_*") if path.suffix != ".json")

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=30,
)


@pytest.mark.parametrize("path", PICKLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_dumps_decode_as_by_cpython(path):
    data = path.read_bytes()
    decoded = decode(data)
    assert decoded.complete
    assert decoded.value == pickle.loads(data)


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@given(value=plain)
def test_plain_data_of_every_protocol(protocol, value):
    data = pickle.dumps(value, protocol)
    if any(op.name == "GLOBAL" for op, _, _ in pickletools.genops(data)):
        assert protocol < 3  # bytes are written as a call
        with pytest.raises(UnreadableError, match="GLOBAL"):
            decode(data)
        return
    decoded = decode(data)
    assert decoded.complete
    assert decoded.value == value


def test_shared_objects_stay_shared():
    inner = [1, 2]
    value = decode(pickle.dumps({"a": inner, "b": inner}, 4)).value
    assert value["a"] is value["b"]


def test_large_containers_come_in_batches():
    value = {str(n): list(range(n % 7)) for n in range(5000)}
    assert decode(pickle.dumps(value, 2)).value == value


@pytest.mark.parametrize("writer", ["torch", 2, 4, 5])
def test_repeats_change_nothing(writer):
    top, shared = dump(700)
    data = torch_pickle(top, shared) if writer == "torch" else pickle.dumps(top, writer)
    fast = decode(data, SHAPE)
    assert fast.complete
    taken = [one for one in fast.value["entries"] if type(one) is Site]
    assert len(taken) > 500, "the comparison has to do most of the work"
    assert len(fast.value["entries"]) == 700
    assert {**fast.value, "entries": 0} == {**top, "entries": 0}
    assert decode(data).value == pickle.loads(data) == top


def test_a_reference_into_a_compared_record_is_still_right():
    top, _ = dump(300)
    for one in top["entries"]:
        one["input_sizes"] = [[4, 4]]  # a new object each, memoised by CPython
    top["again"] = [one["input_sizes"] for one in top["entries"]]
    decoded = decode(pickle.dumps(top, 2), SHAPE)
    assert decoded.complete
    assert decoded.value["again"] == [[[4, 4]]] * 300


def test_a_file_that_ends_early_gives_what_was_complete():
    top, shared = dump(50)
    data = torch_pickle(top, shared)
    for end in (len(data) - 1, len(data) // 2, len(data) // 3):
        decoded = decode(data[:end])
        assert not decoded.complete
        assert "ends early" in decoded.why
        whole = [one for one in decoded.value["entries"] if not any(one is open_ for open_ in decoded.unfinished)]
        assert whole == top["entries"][: len(whole)]
        assert decoded.value["version"] == "2.10"
    assert whole


def test_a_string_cut_in_two_is_not_kept():
    data = torch_pickle({"version": "2.10"})
    at = data.index(b"2.10")
    assert decode(data[: at + 3]).value == {}


def test_damage_is_told_from_a_short_file():
    data = torch_pickle(dump(50)[0])
    decoded = decode(data[:2000] + b"\xff" + data[2000:])
    assert "damaged at byte" in decoded.why or "ends early" in decoded.why
    assert decode(b"\x80\x02\xff" + bytes(50)).why == "the file is damaged at byte 2"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(steps=5000), "steps"),
        (Limits(memo=30), "memoises"),
        (Limits(text=100), "strings"),
        (Limits(seconds=-1), "to decode"),
    ],
)
def test_limits_hold(limits, word):
    top, shared = dump(400, sites=40)
    with pytest.raises(UnreadableError, match=word):
        decode(torch_pickle(top, shared), None, limits)


def test_compared_records_count_against_the_limit():
    top, shared = dump(3000)
    with pytest.raises(UnreadableError, match="steps"):
        decode(torch_pickle(top, shared), SHAPE, Limits(steps=15_000))
