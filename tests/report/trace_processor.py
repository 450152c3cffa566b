"""Perfetto's own trace_processor, for tests of what is written for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("trace_processor.mjs")
PROCESSOR = Path(sys.prefix) / "trace_processor"
REFUSED = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
opens = pytest.mark.skipif(
    not (PROCESSOR / "engine.mjs").exists() or not shutil.which("node"),
    reason="needs node and Perfetto's trace_processor (tools/trace_processor.sh .venv)",
)


@cache
def _engine() -> subprocess.Popen[str]:
    """One for all tests of a process: its start costs more than a trace. It ends with its stdin."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - kept as long as the engine
    return subprocess.Popen(["node", DRIVER, PROCESSOR], stdin=-1, stdout=-1, stderr=errors, text=True, bufsize=1)


def asked(trace: Path, *queries: str) -> list[list[dict]]:
    """The rows of each query on a trace of which nothing is refused."""
    engine = _engine()
    assert engine.stdin is not None
    assert engine.stdout is not None
    engine.stdin.write(json.dumps({"trace": str(trace), "queries": [REFUSED, *queries]}) + "\n")
    answer = engine.stdout.readline()
    if not answer:
        _engine.cache_clear()
    assert answer, f"trace_processor ended with {engine.wait(60)}"
    refused, *rest = json.loads(answer)
    assert refused == []
    return rest
