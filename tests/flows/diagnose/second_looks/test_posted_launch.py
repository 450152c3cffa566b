"""Launch commands that people quote, and launch files beside the logs, where nothing else says why."""

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose

HOST = "torchrun --nnodes=2 --nproc_per_node=4 --node_rank={} --master_addr=10.1.0.{} --master_port=29500 train.py\n"
NOTE = (
    f"It hangs on two machines, nothing is printed.\n\n$ {HOST.format(0, 4)}\non the second:\n$ {HOST.format(1, '{}')}"
)


def verdict(folder, files):
    return diagnose([texts.write(folder, files)], jobs=1).verdict


@pytest.mark.parametrize("name", ["report.md", "context.txt"])
def test_two_meeting_points_in_a_note(tmp_path, name):
    found = verdict(tmp_path, {name: NOTE.format(5)})
    assert (found.category, found.cause) == ("hang", "rendezvous-endpoint")


def test_one_meeting_point_is_no_fault(tmp_path):
    assert verdict(tmp_path, {"report.md": NOTE.format(4)}).cause != "rendezvous-endpoint"


def test_a_launch_file_beside_the_log(tmp_path):
    files = {"launch.sh": HOST.format(0, 4) + HOST.format(1, 5), "train.log": "Setting OMP_NUM_THREADS to 1\n"}
    assert verdict(tmp_path, files).cause == "rendezvous-endpoint"


def test_a_command_over_several_lines(tmp_path):
    note = "fails at once\nCUDA_VISIBLE_DEVICES=0,1 torchrun \\\n  --nproc_per_node 4 train.py\n"
    found = verdict(tmp_path, {"context.txt": note})
    assert (found.category, found.cause) == ("crash", "device-ordinal")


def test_a_job_that_trained_was_launched_well_enough(tmp_path):
    steps = "".join(f"[rank0] step {n} loss 2.{n}\n" for n in range(1, 9))
    files = {"report.md": NOTE.format(5), "train.log": steps}
    assert verdict(tmp_path, files).cause != "rendezvous-endpoint"


def test_what_failed_by_itself_needs_no_launch(tmp_path):
    raised = texts.traceback("ValueError: could not convert string to float: 'x'")
    files = {"report.md": NOTE.format(5), **texts.ranks(8, {3: raised}, "")}
    assert verdict(tmp_path, files).cause == "rank-exception"
