"""Two runs with one change between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

TIMED_OUT = (
    "[rank{rank}]:[E1102 10:22:14.114 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 "
    "milliseconds before timing out.\n"
)
TRAINED = "step 10 loss 4.11\nstep 20 loss 3.90\nstep 30 loss 3.71\nTraining finished in 412.8 s\n"


def run(
    comm: str, *settings: str, hosts: tuple[str, ...] = ("node7",), version: str = "2.21.5", well: bool = False
) -> str:
    """The output of four ranks."""
    pid, text = int(comm, 16), ""
    for rank in range(4):
        head = f"{hosts[rank % len(hosts)]}:{pid + rank}:{pid + 50 + rank} [{rank}] NCCL INFO "
        init = f"comm 0x5{rank} rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank}1000 commId 0x{comm} - "
        text += f"{head}NCCL version {version}+cuda12.4\n"
        text += "".join(f"{head}{name} set by environment to {value}\n" for name, value in _pairs(settings))
        text += f"{head}{init}Init START\n{head}{init}Init COMPLETE\n"
    return text + (TRAINED if well else "".join(TIMED_OUT.format(rank=rank) for rank in range(4)))


def _pairs(settings: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (setting.partition("=") for setting in settings)]


def verdict(folder: Path, *runs: str, together: bool = False) -> tuple[str, str]:
    texts = ["".join(runs)] if together else runs
    for number, text in enumerate(texts):
        (folder / f"run{number}.log").write_text(text, encoding="utf-8")
    found = diagnose([folder], jobs=1).verdict
    return found.category, found.cause


@pytest.mark.parametrize("together", [False, True], ids=["two files", "one file"])
def test_a_setting_that_helped_speaks_for_its_causes(tmp_path: Path, together: bool) -> None:
    category, cause = verdict(tmp_path, run("1000"), run("2000", "NCCL_P2P_DISABLE=1", well=True), together=together)
    assert category == "hang"
    assert cause in ("p2p-driver", "p2p-acs-iommu")


def test_a_setting_that_did_not_help_speaks_for_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, run("1000"), run("2000", "NCCL_P2P_DISABLE=1")) == ("hang", "collective-stalled")


def test_two_changes_at_once_say_nothing(tmp_path: Path) -> None:
    changed = run("2000", "NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1", well=True)
    assert verdict(tmp_path, run("1000"), changed) == ("hang", "collective-stalled")


def test_settings_of_debugging_are_not_a_change(tmp_path: Path) -> None:
    changed = run("2000", "NCCL_DEBUG=INFO", "NCCL_P2P_DISABLE=1", well=True)
    assert verdict(tmp_path, run("1000"), changed)[1].startswith("p2p-")


def test_another_nccl_that_works_speaks_for_a_defect(tmp_path: Path) -> None:
    changed = run("2000", version="2.27.3", well=True)
    assert verdict(tmp_path, run("1000"), changed)[1] in ("nccl-bug", "nccl-library-conflict")
