"""Trackers of experiments get the alert, the summary and the page; each is read back with its own reader."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run import watched
from tests.run.monitoring.test_notify import diagnosis
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.notify import Notifier
from whichrank.run.monitoring.targets.tracker import Tracker

HOSTILE = "Rank 2 skipped all_reduce <script>alert(1)</script>."


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed (pip install 'whichrank[{name}]')"
    )


def told(word: str, out: Path) -> list[str]:
    """A verdict and the end of the restarts: two pieces of news for one run."""
    said: list[str] = []
    (out / "report.html").write_text("<!doctype html><title>the report</title>")
    notifier = Notifier(word, "train.py", said.append, out)
    notifier.on_verdict(diagnosis(HOSTILE))
    notifier.on_alarm("gave up", "the same cause at the same step, twice")
    notifier.close()
    return said


def wandb_records(data: bytes) -> Iterator[bytes]:
    """W&B's offline file: LevelDB's log format (blocks of 32 KiB, pieces with checksum, length and kind)."""
    assert data[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if kind == 0:
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # complete, or the last piece
            yield whole
            whole = b""


@needs("tensorboard")
@pytest.mark.slow
def test_tensorboard_reads_it_back(tmp_path: Path) -> None:
    assert told(f"tensorboard:{tmp_path}/logs", tmp_path) == []
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "logs" / "whichrank"))
    events.Reload()
    alerts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("whichrank/alert")]
    assert "hang, conditional-collective (rank 2 of node7)" in alerts[0]
    assert "is not started again" in alerts[1]
    (verdict,) = (event.tensor_proto.string_val[0].decode() for event in events.Tensors("whichrank/verdict"))
    assert "**cause**\n\n    conditional-collective" in verdict
    assert str(tmp_path / "report.html") in verdict
    from tensorboard.util.tensor_util import make_ndarray

    assert [float(make_ndarray(e.tensor_proto)) for e in events.Tensors("whichrank/alarm")] == [2.0, 2.0]


@needs("trackio")
@pytest.mark.slow
def test_trackio_keeps_the_alert(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    assert told("trackio:pretraining", tmp_path) == []
    (file,) = (tmp_path / "trackio").glob("pretraining*.db")
    with sqlite3.connect(file) as base:
        alerts = base.execute("SELECT title, text, level FROM alerts ORDER BY id").fetchall()
        logged = [json.loads(row[0]) for row in base.execute("SELECT metrics FROM metrics")]
    assert [level.lower() for _, _, level in alerts] == ["error", "error"]
    assert HOSTILE in alerts[0][1]
    assert "is not started again" in alerts[1][0]
    assert logged[0]["whichrank/cause"] == "conditional-collective"
    assert str(tmp_path / "report.html") in json.dumps(logged[0])


@needs("mlflow")
@pytest.mark.bars
def test_mlflow_has_tags_and_the_page(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert told("mlflow:pretraining", tmp_path) == []
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("pretraining")
    (run,) = client.search_runs([experiment.experiment_id])
    tags = run.data.tags
    assert (tags["whichrank.cause"], tags["whichrank.culprit_ranks"]) == ("conditional-collective", "2")
    assert "is not started again" in tags["whichrank.alert"]
    assert [each.path for each in client.list_artifacts(run.info.run_id, "whichrank")] == ["whichrank/report.html"]
    # A run of the job's own is told where it is named.
    job = client.create_run(experiment.experiment_id).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", job)
    assert told("mlflow", tmp_path) == []
    assert client.get_run(job).data.tags["whichrank.cause"] == "conditional-collective"
    assert client.get_run(job).info.status == "RUNNING"


@needs("wandb")
@pytest.mark.bars
def test_wandb_offline_has_the_alert_and_the_summary(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_RUN_ID", "the-job")
    assert told("wandb:pretraining", tmp_path) == []
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    records = [Record.FromString(data) for file in files for data in wandb_records(file.read_bytes())]
    alerts = [each.alert for each in records if each.HasField("alert")]
    assert [each.level for each in alerts] == ["ERROR", "ERROR"]
    assert HOSTILE in alerts[0].text
    runs = [each.run for each in records if each.HasField("run")]
    assert {(run.job_type, run.project) for run in runs} == {("whichrank", "pretraining")}
    assert len({run.run_id for run in runs}) == 1
    assert "the-job" not in {run.run_id for run in runs}
    summary = {
        "/".join([item.key, *item.nested_key]): item.value_json
        for each in records if each.HasField("summary") for item in each.summary.update
    }  # fmt: skip
    assert json.loads(summary["whichrank/cause"]) == "conditional-collective"
    assert list(tmp_path.glob("wandb/offline-run-*/files/media/html/**/*.html"))


CRASH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(5):
    if step == 3 and dist.get_rank() == 1:
        raise ValueError("sample 17 is damaged")
    dist.all_reduce(torch.ones(4))
"""


@pytest.mark.bars
def test_trackers_hear_of_a_real_job(tmp_path: Path) -> None:
    """Two ranks, one of which fails, and all trackers that are installed told by one run."""
    pytest.importorskip("torch")
    places = {"tensorboard": f"{tmp_path}/logs", "trackio": "real", "mlflow": "real", "wandb": "real"}
    known = [name for name in places if importlib.util.find_spec(name)]
    script = tmp_path / "train.py"
    script.write_text(CRASH)
    command = watched.forked(script, world=2)
    targets = [word for name in known for word in ("--notify", f"{name}:{places[name]}")]
    told = {"MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true",
            "TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}  # fmt: skip
    done = watched.run(command, tmp_path / "out", *targets, **told)
    assert done.verdict["cause"] == "rank-exception"
    assert "could not tell" not in done.stderr, done.stderr
    left = {
        "tensorboard": "logs/whichrank/events*", "trackio": "trackio/real*.db", "wandb": "wandb/offline-run-*/*.wandb",
        "mlflow": "mlruns/*/*/tags/whichrank.cause",
    }  # fmt: skip
    assert [name for name in known if not list(tmp_path.glob(left[name]))] == [], done.stderr
    words = b"".join(file.read_bytes() for name in known for file in tmp_path.glob(left[name]))
    assert words.count(b"rank-exception") >= len(known)


def test_a_tracker_that_is_not_there_is_told_before_the_job_starts(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="wandb is not installed"):
        Tracker.of("wandb", "")


@needs("tensorboard")
@pytest.mark.slow
def test_a_tracker_that_fails_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = told(f"tensorboard:{tmp_path}/file", tmp_path)
    assert len(said) == 2
    assert said[0].startswith("could not tell tensorboard of it: ")
