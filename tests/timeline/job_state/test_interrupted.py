"""Waits that somebody ended by hand."""

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.timeline.job_state.interrupted import waits
from whichrank.timeline.job_state.outcome import observed

STORE = (
    "Traceback (most recent call last):\n"
    '  File "dpo.py", line 88, in <module>\n    main()\n'
    '  File "/usr/lib/python3/torch/distributed/rendezvous.py", line 184, in _create_c10d_store\n    return TCPStore(\n'
    "KeyboardInterrupt\n"
)
BARRIER = STORE.replace("rendezvous.py", "distributed_c10d.py").replace("_create_c10d_store", "barrier")
FORWARD = STORE.replace("torch/distributed/rendezvous.py", "torch/nn/modules/linear.py").replace(
    "_create_c10d_store", "forward"
)
STEPS = "".join(f"step {n} loss 2.{n}\n" for n in range(5))


def case(tmp_path, text):
    return texts.case_of(texts.write(tmp_path, {"out.log": text}))


@pytest.mark.parametrize("text", [STORE, BARRIER, f"{STEPS}{STORE}"])
def test_who_is_stopped_at_the_store_or_before_the_first_step_hung(tmp_path, text):
    job = case(tmp_path, text)
    assert len(waits(job)) == 1
    assert observed(job) == "hang"


@pytest.mark.parametrize("text", [FORWARD, f"{STEPS}{BARRIER}"])
def test_who_is_stopped_at_work_did_not(tmp_path, text):
    assert waits(case(tmp_path, text)) == []


def test_what_failed_beside_it_is_a_crash(tmp_path):
    assert observed(case(tmp_path, STORE + texts.traceback("ValueError: no such split"))) == "crash"
