"""A rank that was stopped and goes on: the alarm is withdrawn everywhere."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.run import small, watched
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.run.monitoring.metrics import families
from whichrank.run.monitoring.tally import Tally

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    small.end_all()


@pytest.mark.slow
def test_a_rank_that_was_stopped_and_goes_on(tmp_path: Path) -> None:
    job = small.start(tmp_path)
    told = (tmp_path / "stderr").read_text
    job.until_ready()
    os.kill(job.pid(1), signal.SIGSTOP)
    try:
        job.until("the verdict is there", lambda: "report.md are in" in told(), 120)
        before = json.loads((job.out / "verdict.json").read_text())["verdict"]
        assert before["category"] == "hang"
    finally:
        os.kill(job.pid(1), signal.SIGCONT)
    job.until("it is withdrawn", lambda: "the job goes on: the alarm is withdrawn" in told(), 120)
    job.until("it is written down", lambda: json.loads((job.out / "run.json").read_text())["state"] == "running")
    document = json.loads((job.out / "verdict.json").read_text())
    jsonschema.Draft202012Validator(json.loads((watched.SCHEMAS / "diagnose.schema.json").read_text())).validate(
        document
    )
    assert document["verdict"]["category"] == "healthy"
    assert document["incidents"][0]["cause"] == before["cause"]
    assert document["findings"] == []
    state = json.loads((job.out / "run.json").read_text())
    assert all("withdrawn" in alarm for alarm in state["alarms"]), state["alarms"]
    kept = job.out / "resumed" / "1"
    assert json.loads((kept / "verdict.json").read_text())["verdict"] == before
    assert (kept / "bundle" / "manifest.json").exists()
    shown = subprocess.run(
        watched.whichrank("watch", job.out), capture_output=True, text=True, env=watched.environment(), check=False
    ).stdout
    assert "(withdrawn)" in shown
    assert "last verdict: healthy" in shown
    assert job.end() == 0
    assert job.unharmed


def test_the_metrics_forget_the_verdict() -> None:
    tally = Tally("job")
    tally.on_alarm("confirmed", "rank 1 stopped while others wait")
    tally.on_verdict(Diagnosis(Verdict("hang", "rank-frozen", Subject((1,)), (0,), 0.9, "Rank 1 is stopped.")))
    assert any(family.metric.name == "whichrank_verdict_info" for family in families(tally, 0.0, 0))
    tally.on_alarm("withdrawn", "the job goes on")
    assert not any(family.metric.name == "whichrank_verdict_info" for family in families(tally, 0.0, 0))
    assert tally.alarms["withdrawn"] == 1
