"""Next commands name the real process, or find it: never a placeholder."""

from __future__ import annotations

import pytest

from whichrank.flows.diagnose.next_steps import filled
from whichrank.model.findings import NextStep
from whichrank.timeline.case import Case


def case_with(pid: int | None) -> Case:
    case = Case()
    case.people.note(3, pid=pid, host="node7")
    return case


def test_the_process_of_the_rank_is_filled_in():
    step = filled(NextStep("py-spy dump --pid PID > stack.PID.txt", "shows it"), [3], case_with(760))
    assert step.command == "py-spy dump --pid 760 > stack.760.txt"
    assert step.why == "shows it (on node7)"


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("py-spy dump --nonblocking --pid PID", "whichrank stacks"),
        ("py-spy dump --native --nonblocking --pid PID", "whichrank stacks --native"),
        ("whichrank attach PID", "whichrank attach"),
        ("coredumpctl gdb PID", "coredumpctl gdb"),
        ("grep 'open files' /proc/PID/limits", "ulimit -a | grep 'open files'"),
        ("df -h", "df -h"),
    ],
)
def test_without_a_pid_the_command_finds_the_process(command, instead):
    assert filled(NextStep(command, "why"), [3], case_with(None)).command == instead
