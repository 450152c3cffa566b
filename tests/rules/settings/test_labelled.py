"""Launch files of every format with their faults: each fault is found on its line, and nothing else is reported."""

import json
import re
from pathlib import Path

import pytest

from whichrank.flows.env_lint import lint, read_path

SAMPLES = Path(__file__).parents[2] / "samples"
# A label names one fault per line; these findings are right too.
ALSO_RIGHT = {("Makefile", "ENV112")}


def entries(folder):
    labels = json.loads((SAMPLES / folder / "labels.json").read_text())
    return [pytest.param(folder, entry, id=f"{folder}/{entry['path']}") for entry in labels]


def place(finding):
    ref = finding.evidence[0]
    return Path(ref.source).name, int(re.search(r"\d+$", ref.locator).group())


def fits(finding, fault):
    file, line = place(finding)
    near = Path(fault["file"]).name == file and abs(fault["line"] - line) <= 1
    return near and re.search(rf"\b{re.escape(fault['variable'])}\b", finding.message) is not None


@pytest.mark.parametrize(("folder", "entry"), [*entries("launch_labelled"), *entries("launch_held_out")])
def test_each_fault_and_nothing_else(folder, entry):
    found = [f for f in lint(read_path(SAMPLES / folder / entry["path"])).findings if f.severity != "info"]
    faults = entry.get("faults", [])
    missed = [fault for fault in faults if not any(fits(f, fault) for f in found)]
    assert missed == []
    stray = [f for f in found if not any(fits(f, fault) for fault in faults)]
    assert [f.message for f in stray if (entry["path"], f.code) not in ALSO_RIGHT] == []
