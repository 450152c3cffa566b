"""The history of verdicts: what is kept, what repeats, and what becomes of a file that is locked or broken."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from whichrank.flows.history import recurrence as history
from whichrank.flows.history import store as history_store
from whichrank.flows.history.recurrence import entry, onset, remember, repeats
from whichrank.flows.history.store import Entry, HistoryError, add, place, read
from whichrank.model.errors import UsageError
from whichrank.model.findings import CodePlace, Gpu, Subject
from whichrank.model.verdict import Diagnosis, JobInfo, Verdict

DAY = 86_400.0


def diagnosis(cause: str = "gpu-fell-off-bus", category: str = "crash", job: JobInfo | None = None, **culprits: tuple):
    told = Verdict(category, cause, Subject(**culprits), (), 0.9, f"It was {cause}.")
    return Diagnosis(told, job=job or JobInfo())


def made(run: str, cause: str = "gpu-fell-off-bus", at: float | None = None, **culprits: tuple) -> Entry:
    return entry(diagnosis(cause, **culprits), run=run, job="train.py", out=f"/out/{run}", at=at)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "whichrank" / "history.db"


def test_a_verdict_comes_back_as_it_was(file: Path) -> None:
    told = made(
        "1", ranks=(2, 3), hosts=("node7",), gpus=(Gpu("node7", 3, "GPU-1f"), Gpu("node8", 1), Gpu("", -1)),
        code=(CodePlace("/srv/train.py", 25, "sync"),),
    )  # fmt: skip
    assert remember(told, file) == []
    assert read(file) == [told]
    assert told.hosts == ("node7", "node8")
    assert told.gpus == ("GPU-1f", "node8:1")
    assert told.code == ("/srv/train.py:25 in sync",)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_the_same_host_again(file: Path) -> None:
    now = time.time()
    remember(made("0", hosts=("node7",), at=now - 8 * DAY), file)
    assert remember(made("1", hosts=("node7",), at=now - 2 * DAY), file) == [
        "node7 was guilty 2 times in the last 7 days (gpu-fell-off-bus)"
    ]
    remember(made("2", hosts=("node8",), at=now - DAY), file)
    assert remember(made("3", "ecc-error", hosts=("node7",)), file) == [
        "node7 was guilty 2 times in the last 7 days (ecc-error, gpu-fell-off-bus)"
    ]


def test_a_host_is_not_guilty_of_the_code_that_ran_there(file: Path) -> None:
    place_ = CodePlace("/srv/train.py", 25, "sync")
    remember(made("1", "rank-exception", hosts=("node7",), code=(place_,)), file)
    assert remember(made("2", "rank-exception", hosts=("node7",), code=(place_,)), file) == [
        "train.py:25 in sync was named 2 times in the last 7 days (rank-exception)"
    ]
    found = repeats(read(file))
    assert [(r.kind, r.name, r.count) for r in found] == [("code", "/srv/train.py:25 in sync", 2)]


def test_one_run_counts_once(file: Path) -> None:
    remember(made("1", hosts=("node7",)), file)
    assert remember(made("1", hosts=("node7",)), file) == [], "the same verdict of a second attempt"
    assert len(read(file)) == 1
    remember(made("1", "ecc-error", hosts=("node7",)), file)
    assert len(read(file)) == 2


def test_health_is_not_remembered(file: Path) -> None:
    assert remember(entry(diagnosis("healthy", "healthy"), run="1", job="", out=""), file) == []
    assert not file.exists()


def test_what_is_asked_for(file: Path) -> None:
    now = time.time()
    for run, (cause, host, age) in enumerate(
        [("ecc-error", "node7", 1), ("ecc-error", "node8", 2), ("host-lost", "node7", 3), ("ecc-error", "node7", 40)]
    ):
        add(file, made(str(run), cause, at=now - age * DAY, hosts=(host,)))
    assert [e.id for e in history.look_up(30 * DAY, file=file)] == [e.id for e in read(file)[:3]], "the newest first"
    assert len(history.look_up(30 * DAY, host="node7", file=file)) == 2
    assert len(history.look_up(365 * DAY, host="node7", cause="ecc-error", file=file)) == 2
    assert history.look_up(60, file=file) == []


def test_it_stays_small(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "MOST", 5)
    for run in range(12):
        add(file, made(str(run), at=1000.0 + run))
    kept = read(file)
    assert [e.time for e in kept] == [1011.0, 1010.0, 1009.0, 1008.0, 1007.0]
    long = replace(kept[0], id="long", summary="x" * 10_000 + "\ud800", ranks=tuple(range(5000)))
    add(file, replace(long, time=2000.0))
    assert len(read(file)[0].summary) <= history_store.LONGEST
    assert len(read(file)[0].ranks) == 64


def test_a_locked_file_is_told_and_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "BUSY_S", 0.2)
    add(file, made("1"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(HistoryError, match="locked"):
            add(file, made("2"))
    finally:
        other.close()
    assert len(read(file)) == 1, "and nothing is lost"


@pytest.mark.parametrize("content", [b"this is no database, " * 100, b"SQLite format 3\0" + os.urandom(5000)])
def test_a_broken_file_is_put_aside(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(HistoryError, match="can't read"):
        read(file)
    add(file, made("1"))
    assert len(read(file)) == 1
    assert file.with_name("history.db.broken").read_bytes() == content


def test_rows_of_others_are_passed_over(file: Path) -> None:
    add(file, made("1"))
    with sqlite3.connect(file) as base:
        base.execute("INSERT INTO verdicts VALUES ('x', 'then', 'j', 'c', 'c', 1, 's', 'o', '[]', '[]', '[]', '[]')")
        base.execute("INSERT INTO verdicts VALUES ('y', 9e9, 'j', 'c', 'c', 1, 's', 'o', '[\"a\"]', '[]', '[]', '[]')")
        base.execute(f"INSERT INTO verdicts VALUES ('z', 9e9, 'j', 'c', 'c', 1, 's', 'o', '{'[' * 9999}', '', '', '')")
    base.close()
    assert [e.job for e in read(file)] == ["train.py"]


def test_a_newer_format_is_left_alone(file: Path) -> None:
    add(file, made("1"))
    base = sqlite3.connect(file)
    base.execute("PRAGMA user_version = 99")
    base.commit()
    base.close()
    for call in (lambda: read(file), lambda: add(file, made("2"))):
        with pytest.raises(HistoryError, match="newer whichrank"):
            call()


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(HistoryError, match="can't write"):
        add(tmp_path / "state" / "history.db", made("1"))


def test_many_writers(file: Path) -> None:
    failures = []

    def write(number: int) -> None:
        try:
            for run in range(5):
                add(file, made(f"{number}-{run}"))
        except HistoryError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(read(file)) == 30


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert place({"WHICHRANK_HISTORY": "off"}) is None
    assert place({"WHICHRANK_HISTORY": "/x/y.db"}) == Path("/x/y.db")
    assert place({"XDG_STATE_HOME": "/state"}) == Path("/state/whichrank/history.db")
    for environ in ({}, {"XDG_STATE_HOME": "relative"}):
        assert place(environ) == Path("/home/someone/.local/state/whichrank/history.db")
    monkeypatch.setenv("WHICHRANK_HISTORY", "off")
    assert remember(made("1")) == []
    with pytest.raises(UsageError, match="switched off"):
        history.look_up(60)


def test_the_time_of_old_evidence() -> None:
    assert onset(diagnosis(job=JobInfo(onset="2025-11-15T00:00:10.500Z"))) == 1_763_164_810.5
    assert onset(diagnosis(job=JobInfo(started="2025-11-15T00:00:10Z"))) == 1_763_164_810.0
    assert onset(diagnosis(job=JobInfo(onset="2999-01-01T00:00:00Z"))) == pytest.approx(time.time(), abs=60)
    assert onset(diagnosis(job=JobInfo(onset="yesterday"))) is None
    assert onset(diagnosis()) is None


@pytest.mark.parametrize(("text", "value"), [("90m", 5400), ("36h", 129_600), (" 7d ", 7 * DAY), ("4w", 28 * DAY)])
def test_spans(text: str, value: float) -> None:
    assert history.seconds(text) == value


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 years", "9999999d"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        history.seconds(text)
