"""Launch files of every format with their faults: each fault is found on its line, and nothing else is reported."""

import json
import re
from pathlib import Path

from tests.each import over
from tests.evidence_at import unpacked
from whichrank.flows.env.lint import lint, read_path

SAMPLES = Path(__file__).parents[2] / "samples"
# A label names one fault per line; these findings are right too.
ALSO_RIGHT = {
    ("Makefile", "ENV112"),
    ("pytorchjob.yaml", "ENV111"),
    ("Dockerfile.entry", "ENV103"),
    ("Dockerfile.entry", "ENV115"),
}
NOT_YET = {
    "launch_round_26/Dockerfile": "a size under an unknown name, which is told twice",
    "launch_round_26/run_pdsh.sh": "a variable that is exported for a command of this host alone",
    "launch_round_26/start_cluster.sh": "the unit of a pause, and the line of an address that is made in a function",
    "launch_round_26/submit.py": "a variable that a program sets after it has started its ranks",
    "launch_round_25/run_mpi.sh": "a command behind a profiler that is set under a condition",
    "launch_round_25/launch_ddp.py": "a variable that a program sets after it has started its ranks",
    "launch_round_20/launch_mi300.py": "lists of GPUs within lists that a program takes from a table",
}
FOLDERS = [
    SAMPLES / "launch_labelled",
    SAMPLES / "launch_held_out",
    unpacked("launch_round_2.tar.xz") / "launch_round_2",
    unpacked("launch_round_3.tar.xz") / "launch_round_3",
    unpacked("launch_round_4.tar.xz") / "launch_round_4",
    unpacked("launch_round_5.tar.xz") / "launch_round_5",
    unpacked("launch_round_6.tar.xz") / "launch_round_6",
    unpacked("launch_round_8.tar.xz") / "launch_round_8",
    unpacked("launch_round_9.tar.xz") / "launch_round_9",
    unpacked("launch_round_14.tar.xz") / "launch_round_14",
    unpacked("launch_round_15.tar.xz") / "launch_round_15",
    unpacked("launch_round_16.tar.xz") / "launch_round_16",
    unpacked("launch_round_18.tar.xz") / "launch_round_18",
    unpacked("launch_round_19.tar.xz") / "launch_round_19",
    unpacked("launch_round_20.tar.xz") / "launch_round_20",
    unpacked("launch_round_21.tar.xz") / "launch_round_21",
    unpacked("launch_round_22.tar.xz") / "launch_round_22",
    unpacked("launch_round_23.tar.xz") / "launch_round_23",
    unpacked("launch_round_24.tar.xz") / "launch_round_24",
    unpacked("launch_round_25.tar.xz") / "launch_round_25",
    unpacked("launch_round_26.tar.xz") / "launch_round_26",
]


def entries(folder):
    for entry in json.loads((folder / "labels.json").read_text()):
        yield folder, entry


def name_of(folder, entry):
    return f"{folder.name}/{entry['path']}"


def place(finding):
    ref = finding.evidence[0]
    return Path(ref.source).name, int(re.search(r"\d+$", ref.locator).group())


def fits(finding, fault):
    file, line = place(finding)
    return Path(fault["file"]).name == file and any(
        abs(said["line"] - line) <= 1 and re.search(rf"\b{re.escape(said['variable'])}\b", finding.message)
        for said in (fault, *fault.get("also", ()))
    )


@over([entry for folder in FOLDERS for entry in entries(folder)], name_of)
def test_each_fault_and_nothing_else(folder, entry):
    found = [f for f in lint(read_path(folder / entry["path"])).findings if f.severity != "info"]
    faults = entry.get("faults", [])
    missed = [fault for fault in faults if not any(fits(f, fault) for f in found)]
    stray = [f for f in found if not any(fits(f, fault) for fault in faults)]
    stray = [f.message for f in stray if (entry["path"], f.code) not in ALSO_RIGHT]
    assert (missed == [] and stray == []) == (name_of(folder, entry) not in NOT_YET), (missed, stray)
