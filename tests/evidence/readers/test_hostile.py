"""Hostile dumps: none runs code, takes more than 512 MiB or ten seconds, or raises the unforeseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from tests.evidence.readers import hostile
from tests.evidence.readers.torchlike import dump, torch_pickle
from whichrank.evidence.readers import flight_recorder
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests" / "samples" / "flight_recorder"
BASES = [path.read_bytes() for path in sorted(SAMPLES.rglob("fr_*"))] + [torch_pickle(*dump(60))]


def read_under_limits(folder: Path, cases: dict[str, bytes]) -> dict[str, tuple[str, float]]:
    """Read all cases in one child with limits; what it said of each."""
    for name, data in cases.items():
        (folder / f"{name}.case").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "tests.evidence.readers.hostile", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (ROOT / hostile.SENTINEL).exists()
    return json.loads(done.stdout)


def survived(said: str, seconds: float) -> None:
    assert said != "out of memory"
    assert seconds < 10 or seconds < 10 * cost.pace()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    exhausting = {name: hostile.EXHAUSTING[name]() for name in hostile.SHORT}
    return read_under_limits(tmp_path_factory.mktemp("hostile"), {**hostile.executing(), **exhausting})


@pytest.mark.parametrize("name", [*hostile.executing(), *hostile.SHORT])
def test_survived_within_limits(outcome, name):
    survived(*outcome[name])


@pytest.mark.bars
@pytest.mark.parametrize("name", hostile.LONG)
def test_the_longest_are_survived_too(tmp_path, name):
    survived(*read_under_limits(tmp_path, {name: hostile.EXHAUSTING[name]()})[name])


@pytest.mark.parametrize("name", sorted(hostile.executing()))
def test_code_is_refused_by_name(outcome, name):
    said, _ = outcome[name]
    assert said.startswith("refused: the pickle wants to run code or load objects")


def test_the_corpus_does_run_code_elsewhere(tmp_path):
    """The cases are what they claim: CPython's Unpickler runs them."""
    data = tmp_path / "case"
    data.write_bytes(hostile.executing()["system-4"])
    subprocess.run([sys.executable, "-c", "import pickle; pickle.load(open('case', 'rb'))"], cwd=tmp_path, check=True)
    assert (tmp_path / hostile.SENTINEL).exists()


def survives(tmp_path, data):
    path = tmp_path / "fr_0"
    path.write_bytes(data)
    try:
        reading = flight_recorder.read(Item(path, "fr_0", len(data), 0))
    except UnreadableError:
        return
    got = reading.records[0]
    assert {len(column) for column in (got.seq, got.call, got.group, got.created_ns, got.state)} == {len(got)}
    if len(got):
        assert got.call.max() < len(got.calls)
        assert got.group.max() < len(got.groups)


@pytest.mark.fuzz
@given(
    base=st.sampled_from(BASES),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_mutated_dumps(tmp_path_factory, base, edits):
    data = bytearray(base)
    for where, value in edits:
        data[min(int(where * len(data)), len(data) - 1)] = value
    survives(tmp_path_factory.getbasetemp(), bytes(data))


@pytest.mark.fuzz
@given(base=st.sampled_from(BASES), end=st.floats(0, 1))
def test_truncated_dumps(tmp_path_factory, base, end):
    survives(tmp_path_factory.getbasetemp(), base[: int(end * len(base))])


@pytest.mark.fuzz
@given(
    pieces=st.lists(st.tuples(st.sampled_from(BASES), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=4),
    extra=st.binary(max_size=40),
)
def test_spliced_dumps(tmp_path_factory, pieces, extra):
    data = b"".join(base[int(min(a, b) * len(base)) : int(max(a, b) * len(base))] + extra for base, a, b in pieces)
    survives(tmp_path_factory.getbasetemp(), b"\x80\x02" + data)
    survives(tmp_path_factory.getbasetemp(), data)


@pytest.mark.fuzz
@given(data=st.binary(max_size=200))
def test_noise(tmp_path_factory, data):
    survives(tmp_path_factory.getbasetemp(), b"\x80" + data)
