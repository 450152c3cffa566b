from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from whichrank.cli.tools.schema import schemas


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "history.db")


def test_what_diagnose_remembers(whichrank, example, file, tmp_path):
    other = tmp_path / "again"
    other.symlink_to(example)
    assert whichrank("diagnose", example, WHICHRANK_HISTORY=file).returncode == 1
    assert whichrank("history", WHICHRANK_HISTORY=file).stdout == "no verdict in the last 30d\n"
    for _ in range(2):
        first = whichrank("diagnose", example, "--remember", "--quiet", WHICHRANK_HISTORY=file)
        assert (first.returncode, first.stderr) == (1, ""), "the same evidence counts once"
    second = whichrank("diagnose", other, "--remember", "--quiet", WHICHRANK_HISTORY=file)
    assert second.stderr.startswith("whichrank: train.py:25 in sync_grads was named 2 times in the last 7 days")
    told = whichrank("history", "--since", "5000w", WHICHRANK_HISTORY=file)
    assert told.returncode == 0
    assert told.stdout.count("  Rank 2 (tp=0) skipped all_reduce") == 2
    assert "AGAIN in the last 5000w\n  code train.py:25 in sync_grads: 2 times (conditional-collective)" in told.stdout


def test_the_document_follows_its_schema(whichrank, example, file):
    whichrank("diagnose", example, "--remember", "--quiet", WHICHRANK_HISTORY=file)
    schema = json.loads(schemas()["history"].read_text())
    for arguments, count in (((), 1), (("--cause", "ecc-error"), 0), (("--host", "nobody"), 0)):
        done = whichrank("history", "--since", "5000w", "--format", "json", *arguments, WHICHRANK_HISTORY=file)
        document = json.loads(done.stdout)
        jsonschema.validate(document, schema)
        assert len(document["entries"]) == count
    assert document["schema_version"] == 1


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("--since", "soon"), {}, "'soon' is not a duration"),
        ((), {"WHICHRANK_HISTORY": "off"}, "switched off"),
    ],
)
def test_usage(whichrank, file, arguments, environment, words):
    done = whichrank("history", *arguments, **{"WHICHRANK_HISTORY": file, **environment})
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_broken_file(whichrank, example, tmp_path):
    file = tmp_path / "history.db"
    file.write_bytes(b"nonsense" * 1000)
    done = whichrank("history", WHICHRANK_HISTORY=str(file))
    assert done.returncode == 3
    assert "can't read the history" in done.stderr
    (tmp_path / "folder").mkdir()
    kept = whichrank("diagnose", example, "--remember", "--quiet", WHICHRANK_HISTORY=str(tmp_path / "folder"))
    assert kept.returncode == 1, "the verdict's code stands"
    assert "the verdict is not in the history" in kept.stderr
