"""Who is meant, where ranks, hosts, addresses and GPUs are told in different files."""

from __future__ import annotations

from pathlib import Path

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder, files)]).verdict


NVLINK = (
    "[dx-2] [rank{}]: torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution\n"
)
PLACES = "".join(f"[dx-2] NCCL: rank {n} cudaDev {n - 4} busId {n}b000 pid {900 + n}\n" for n in range(4, 8))
STEPS = "".join(f"[dx-1] [2026-05-04 10:00:{n:02}] iteration {n}/ 900 | lm loss: 2.1 |\n" for n in range(40, 45))
FATAL = "May 04 10:00:46 dx-2 kernel: NVRM: Xid (PCI:0000:{}b:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)\n"


def test_of_peers_that_lost_nvlink_the_one_whose_gpu_failed(tmp_path: Path) -> None:
    said = "".join(map(NVLINK.format, (4, 6, 7)))
    found = verdict(tmp_path, {"job.log": PLACES + STEPS + said, "kernel_dx-2.txt": FATAL.format(6)})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("nvlink-fault", (6,), ("dx-2",))
    assert {4, 7} <= set(found.victims)


def test_without_the_driver_each_peer_may_be_it(tmp_path: Path) -> None:
    said = "".join(map(NVLINK.format, (4, 6, 7)))
    found = verdict(tmp_path, {"job.log": PLACES + STEPS + said})
    assert (found.culprits.ranks, found.culprits.candidates) == ((), (4, 6, 7))


INDEX = "/data/cache/9f1c-train-index.npy"
NOT_THERE = f"FileNotFoundError: [Errno 2] No such file or directory: '{INDEX}'"


def test_ranks_by_a_prefix_of_host_and_rank(tmp_path: Path) -> None:
    built = f"(k-w0, rank=0) building the index\n(k-w0, rank=0) saved {INDEX}\n(k-w1, rank=4) loaded {INDEX}\n"
    lost = "".join(
        f"(k-w2, rank={n}) {line}\n" for n in range(8, 12) for line in texts.traceback(NOT_THERE).splitlines()
    )
    found = verdict(tmp_path, {"job.log": built + lost})
    assert (found.culprits.ranks, found.culprits.hosts) == ((8, 9, 10, 11), ("k-w2",))
