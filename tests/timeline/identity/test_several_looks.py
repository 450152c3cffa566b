"""Stacks of the same processes, taken at several moments."""

from __future__ import annotations

from whichrank.flows.diagnose.pipeline import diagnose

LOOK = (
    "Process {0}: python -u train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
    'Thread {0} (idle): "MainThread"\n{1}    <module> (train.py:94)\n'
)
WAITS = "    all_reduce (torch/distributed/distributed_c10d.py:3068)\n    main (train.py:{})\n"


def verdict(folder, *looks):
    for number, lines in enumerate(looks, 1):
        place = folder / f"look-{number}"
        place.mkdir()
        for pid, line in enumerate(lines, 700):
            (place / f"stack.{pid}.txt").write_text(LOOK.format(pid, WAITS.format(line)))
    return diagnose([folder], jobs=1).verdict


def test_processes_that_went_on_between_two_looks_do_not_hang(tmp_path):
    assert verdict(tmp_path, (30, 30, 34), (34, 34, 30)).category != "hang"


def test_of_a_process_that_stands_still_one_look_counts(tmp_path):
    found = verdict(tmp_path, (30, 30, 34), (30, 30, 34))
    assert found.category == "hang"
    assert "3 processes" not in found.summary
