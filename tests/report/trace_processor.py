"""Perfetto's own trace_processor, for tests of what is written for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("trace_processor.mjs")
PROCESSOR = Path(sys.prefix) / "trace_processor"
REFUSED = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
opens = pytest.mark.skipif(
    not (PROCESSOR / "engine.mjs").exists() or not shutil.which("node"),
    reason="needs node and Perfetto's trace_processor (tools/trace_processor.sh .venv)",
)


def asked(trace: Path, *queries: str) -> list[list[dict]]:
    """The rows of each query on a trace of which nothing is refused."""
    done = subprocess.run(
        ["node", DRIVER, PROCESSOR, trace],
        input=json.dumps([REFUSED, *queries]),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    refused, *rest = json.loads(done.stdout)
    assert refused == []
    return rest
