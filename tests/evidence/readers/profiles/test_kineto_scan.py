"""The scanner in C against the decoder in Python: what it takes it reads the same, and all else it leaves alone."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.evidence import building
from tests.traces import job
from whichrank.evidence.readers import kineto
from whichrank.evidence.readers.kineto import scan, table
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.profiles.trace import Spans

SAMPLE = ROOT / "tests/samples/traces/gloo_data_4rank/rank-1.json.gz"
pytestmark = pytest.mark.skipif(not building.can_build(), reason="no C compiler, or no headers of Python")

ODD = [
    b"null", b"true", b"-1", b"0", b"01", b"1.", b"1.5", b"1e3", b"-0.5", b"12345678901234567890", b"0.0005", b"1e999",
    b'"7"', b'""', b'"a\\u00e9b"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\xff"', b'"\xc3\xa9"', b'"a\\"b"', b'"tab\t"',
    b"[]", b"{}", b"[1,[2]]", b'{"a":{"b":[null]}}', b"nan", b"NaN", b"", b'"stream 7"', b'"X"', b'"M"', b'"i"', b'"Q"',
    b'"cuda_runtime"', b'"process_name"', b"4503599627370495.999", b"4503599627370496", b"99999999999.999",
    b"100000000000.001",
]  # fmt: skip
KEYS = [b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"stream", b"correlation", b"Collective name",
        b"Input Dims", b"Seq", b"p\\u0068", b"other", b"Process Group Ranks"]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library of this checkout, whatever is installed."""
    return building.load(building.SCAN, building.build(building.SCAN, tmp_path_factory.mktemp("scan"), "-O2"))


def reading(library, data, path):
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "library", lambda: library)
        try:
            return kineto.read(Item(path, path.name, len(data), 0))
        except UnreadableError as error:
            return error


def rows(spans, trace):
    """Spans in words: numbers of names may differ, for a batch that was left alone has numbered some already."""
    names = np.array([*trace.names, ""], object)[spans.name]
    lanes = [(trace.lanes[lane].process, trace.lanes[lane].thread) for lane in spans.lane.tolist()]
    comms = [trace.collectives[c] if c >= 0 else None for c in spans.comm.tolist()]
    columns = (spans.start, spans.end, spans.kind, spans.link)
    return list(zip(*(c.tolist() for c in columns), names, lanes, comms, strict=True))


def assert_same(one, other):
    if isinstance(one, UnreadableError) or isinstance(other, UnreadableError):
        assert repr(one) == repr(other)
        return
    assert (one.quality, one.note, len(one.records)) == (other.quality, other.note, len(other.records))
    for a, b in zip(one.records, other.records, strict=True):
        for name in a.__struct_fields__:
            mine, theirs = getattr(a, name), getattr(b, name)
            if isinstance(mine, Spans):
                assert rows(mine, a) == rows(theirs, b), name
            elif name not in ("names", "lanes", "collectives"):
                assert mine == theirs, name


def texts(folder):
    """A real profile of the host and a constructed one of a device with collectives."""
    made = job(folder, world=2, steps=3)
    return [gzip.decompress(SAMPLE.read_bytes())[:200_000], json.dumps(made[0].document(), indent=1).encode()]


def damaged(text, rng):
    """The same with some values, keys or bytes that nobody expects."""
    begun = text.index(b'"traceEvents"')
    for _ in range(rng.choice((1, 1, 2, 5))):
        if len(text) <= begun:
            break
        at = rng.randrange(begun, len(text))
        match rng.randrange(6):
            case 0:  # another value
                colon = text.find(b":", at)
                end = min((e for e in (text.find(b",", colon), text.find(b"}", colon)) if e > 0), default=len(text))
                text = text[: colon + 1] + b" " + rng.choice(ODD) + text[end:]
            case 1:  # another key
                quote = text.find(b'"', at)
                over = text.find(b'"', quote + 1)
                text = text[: quote + 1] + rng.choice(KEYS) + text[over:]
            case 2:  # one more pair
                brace = text.find(b"{", at)
                text = text[: brace + 1] + b'"' + rng.choice(KEYS) + b'":' + rng.choice(ODD) + b"," + text[brace + 1 :]
            case 3:  # a byte
                text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
            case 4:  # cut out
                text = text[:at] + text[at + rng.randrange(1, 60) :]
            case _:  # an event that is whole
                brace = text.find(b"{", begun)
                event = {
                    "ph": "X",
                    "name": "n\\u00e9",
                    "ts": rng.choice((1, 1.5, 10**15)),
                    "dur": 1,
                    "pid": "a",
                    "tid": None,
                }
                text = text[:brace] + json.dumps(event).encode() + b"," + text[brace:]
    return text


def compare(built, text, folder):
    assert_same(reading(built, text, folder / "t.json"), reading(None, text, folder / "t.json"))


def test_real_and_constructed_profiles_are_taken(built, tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "library", lambda: built)
    for text in texts(tmp_path / "job"):
        batch = text[text.index(b"{", text.index(b'"traceEvents"')) : text.rindex(b"}")]
        last = batch.rfind(b"},\n")
        found = table.Table(exact=True).scanner()(batch, last + 1)
        assert found is not None
        assert len(found) > 10
        compare(built, text.replace(b"rank-1", b""), tmp_path)


@pytest.mark.parametrize("turn", range(8))
def test_whatever_is_in_a_file_both_say_the_same(built, turn, tmp_path, monkeypatch):
    rng = random.Random(turn)
    monkeypatch.setattr("whichrank.evidence.trace_files.PIECE", rng.choice((1 << 12, 1 << 14, 1 << 20)))
    for text in texts(tmp_path / "job"):
        small = text[: rng.randrange(4_000, 40_000)] if rng.random() < 0.7 else text
        for _ in range(10):
            compare(built, damaged(small, rng), tmp_path)


@pytest.mark.parametrize("key", [b"name", b"cat", b"pid", b"ts", b"dur", b"args", b"ph"])
def test_odd_values(built, key, tmp_path):
    event = (
        b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10.5,"dur":2.25,"args":{"stream":7,"correlation":3}}'
    )
    for value in ODD:
        odd = event[:-1] + b',"' + key + b'":' + value + b"}"
        compare(built, b'{"traceEvents":[' + b",".join((event, odd, event)) + b"]}", tmp_path)


@pytest.mark.parametrize("turn", range(6))
def test_titles_that_are_told_again_and_again(built, turn, tmp_path):
    """The last one counts, whatever was told between; some profilers write the same few before every span."""
    rng = random.Random(turn)
    titles = [
        {"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": 0, "args": {"name" if "name" in name else "labels": text}}
        for name in ("process_name", "thread_name", "process_labels") for pid in (1, 2) for text in ("a", "b", "ab")
    ]  # fmt: skip
    chosen = rng.sample(titles, rng.choice((2, 3, 4, 9)))
    events = []
    for number in range(rng.choice((30, 300))):
        events += chosen if rng.random() < 0.6 else rng.choices(titles, k=rng.randrange(4))
        events.append(
            {"name": "k", "ph": "X", "cat": "cpu_op", "ts": number, "dur": 1, "pid": 1 + number % 2, "tid": 0}
        )
    compare(built, json.dumps({"traceEvents": events}).encode(), tmp_path)


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("WHICHRANK_NATIVE", "0")
    scan.library.cache_clear()
    assert scan.library() is None
    scan.library.cache_clear()


@pytest.mark.bars
def test_under_the_sanitizers(tmp_path):
    code = (
        "import random; from tests.evidence.readers.profiles.test_kineto_scan import texts, damaged, table\n"
        f"rng, samples = random.Random(7), texts(Path({str(tmp_path / 'job')!r}))\n"
        "for turn in range(4000):\n"
        "    text = damaged(rng.choice(samples)[:rng.randrange(2000, 30000)], rng)\n"
        "    batch = text[text.find(b'{', text.find(b'traceEvents')):]\n"
        "    for end in (len(batch), batch.rfind(b'}') + 1, rng.randrange(len(batch) + 1)):\n"
        "        built.scan(built.memory(), batch, end, bool(turn % 2), table.Table().number)"
    )
    building.run_sanitized(building.SCAN, tmp_path, code)
