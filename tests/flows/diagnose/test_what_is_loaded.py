"""A short command takes the time that it takes to load: what the evidence does not need stays away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import _torch_shape as torch_shape

DIAGNOSE = """
import sys
from pathlib import Path
from whichrank.facts import messages
from whichrank.flows.diagnose.pipeline import diagnose
diagnose([Path(sys.argv[1])])
print("table" if messages.built_in.cache_info().currsize else "", *sys.modules)
"""
STACKS = "whichrank.timeline.job_state.activity"
OF_OTHERS = {
    "whichrank.evidence.readers.kernel_log.lines",
    "whichrank.evidence.readers.host_state.tables",
    "whichrank.evidence.readers.nccl_ras.text_report",
    "whichrank.facts.phases",
}


def loaded(path: Path) -> set[str]:
    command = [sys.executable, "-c", DIAGNOSE, str(path)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_dumps_need_neither_messages_nor_stacks_nor_other_readers(tmp_path):
    torch_shape.write(tmp_path, 4, 20)
    found = loaded(tmp_path)
    assert "whichrank.evidence.readers.flight_recorder" in found
    assert not found & {"table", STACKS, "whichrank.evidence.readers.torch_output"}


def test_a_log_needs_no_patterns_of_other_logs(tmp_path):
    (tmp_path / "rank_0.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    found = loaded(tmp_path)
    assert "whichrank.evidence.readers.torch_output" in found
    assert not found & OF_OTHERS
