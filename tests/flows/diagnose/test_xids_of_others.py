"""A GPU fault on a host accuses only jobs that it can have to do with."""

import shutil

import pytest

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose

AT = "2026-11-15T00:07:10,000000+00:00"
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
MMU = "NVRM: Xid (PCI:0000:3b:00): 31, pid=99999, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"


def case_with(tmp_path, *lines):
    shutil.copytree(ROOT / "examples" / "skipped_collective", tmp_path / "job")
    (tmp_path / "job" / "dmesg.txt").write_text("".join(f"{AT} {line}\n" for line in lines))
    return diagnose([tmp_path / "job"])


@pytest.mark.parametrize("line", [LOST, MMU])
def test_a_job_without_gpus_is_not_harmed_by_them(tmp_path, line):
    found = case_with(tmp_path, "systemd[1]: Started Session 4 of User train.", line)
    assert found.verdict.cause == "conditional-collective"
    assert found.verdict.culprits.ranks == (2,)
    assert not any(finding.code.startswith(("GPUH", "CUDA16")) for finding in found.findings)
