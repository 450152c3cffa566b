"""What a watched run says of its end, read beside the evidence of an alarm that was withdrawn."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.evidence_at import ROOT
from whichrank.flows.diagnose.pipeline import diagnose

STOOD = ROOT / "tests" / "samples" / "gloo_waits" / "left_early"
WITHDRAWN = {"level": "suspect", "withdrawn": "2026-11-17T15:13:46.728Z"}


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ({}, "healthy"),
        ({"alarms": []}, "healthy"),
        ({"alarms": [WITHDRAWN, {"level": "confirmed"}]}, "teardown-hang"),
        ({"attempts": 2}, "teardown-hang"),
        ({"exit_code": 1}, "teardown-hang"),
        ({"state": "running", "exit_code": None}, "teardown-hang"),
        ({"ended_on_request": True}, "teardown-hang"),
        ({"alarms": "none"}, "teardown-hang"),
    ],
)
def test_a_job_that_went_on_and_ended_well(tmp_path, told, cause):
    shutil.copytree(STOOD, tmp_path / "bundle")
    record = {"schema_version": 1, "state": "ended", "attempts": 1, "alarms": [WITHDRAWN], "exit_code": 0} | told
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert diagnose([tmp_path], jobs=1).verdict.cause == cause
