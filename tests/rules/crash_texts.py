"""Small outputs of jobs, in the words of torch, NCCL, Gloo and launchers of several versions."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from whichrank.evidence.intake import collect
from whichrank.facts.rule_rows import rows
from whichrank.flows.diagnose.reading import read_all
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case

Files = dict[str, str]


def case_of(*paths: Path) -> Case:
    """All that the readers make of these files."""
    with collect(paths) as intake:
        outcomes = read_all(intake.items, jobs=1, progress=None)
    return build_case([record for outcome in outcomes for _, reading in outcome for record in reading.records])


def write(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def traceback(error: str, file: str = "train.py", line: int = 118, function: str = "main") -> str:
    return (
        f'Traceback (most recent call last):\n  File "{file}", line {line}, in {function}\n    step(batch)\n{error}\n'
    )


def ranks(count: int, texts: dict[int, str], rest: str = "") -> Files:
    """One folder per rank, as torchrun redirects."""
    return {f"rank{rank}/stderr.log": texts.get(rank, rest) for rank in range(count)}


def lost_peer(seq: int = 12) -> str:
    """What a victim on NCCL prints."""
    return (
        f"[E1115 00:10:45.710092703 ProcessGroupNCCL.cpp:683] [Rank 0] Collective WorkNCCL(SeqNum={seq}, "
        "OpType=ALLREDUCE, NumelIn=262656, NumelOut=262656, Timeout(ms)=600000) raised the following async "
        "exception: NCCL error: remote process exited or there was a network error, NCCL version 2.28.9\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\nsocketProgress: Connection closed by remote peer node1<50610>\n"
    )


GLOO_CLOSED = traceback(
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer "
    "[10.0.0.2]:2231. This is typically caused by a remote worker crashing."
)
TIMED_OUT = (
    "[rank{0}]:[E1115 00:20:45.710092703 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600041 "
    "milliseconds before timing out.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
)
STORE_GONE = traceback(
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
    "server shutdown or crash?"
)


def table(rows: dict[int, int], first: int, host: str = "node7") -> str:
    """The elastic agent's last words: exit code by rank, and which one it saw first."""

    def row(number: int, rank: int) -> str:
        code = rows[rank]
        cause = f"Signal {-code} received by PID {1000 + rank}" if code < 0 else "To enable traceback see: https://x"
        return (
            f"[{number}]:\n  time      : 2026-11-15_00:10:45\n  host      : {host}\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {1000 + rank})\n"
            f"  error_file: <N/A>\n  traceback : {cause}\n"
        )

    told = [r for r in rows if r != first and rows[r] == -15]
    closing = "".join(
        f"W1115 00:10:45.300000 900 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010] "
        f"Sending process {1000 + r} closing signal SIGTERM\n"
        for r in told
    )
    others = "".join(row(i + 1, r) for i, r in enumerate(r for r in rows if r != first))
    line = "=" * 54
    return (
        closing
        + traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "torch/distributed/run.py")
        + f"{line}\ntrain.py FAILED\n{'-' * 54}\nFailures:\n{others}{'-' * 54}\n"
        + f"Root Cause (first observed failure):\n{row(0, first)}{line}\n"
    )


def nccl(text: str, rank: int = 0, size: int = 2, pid: int = 700, host: str = "node1", bus: str = "60") -> str:
    """A NCCL log of one process: its communicator over the whole job, and one warning."""
    at = f"{host}:{pid}:{pid} [0]"
    init = (
        f"{at} NCCL INFO ncclCommInitRankConfig comm 0x55 rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId {bus} "
        "commId 0xd3f5 - Init START\n"
    )
    return f"{at} NCCL INFO NCCL version 2.28.9+cuda13.0\n{init}\n{at} init.cc:1582 NCCL WARN {text}\n"


def fingerprints(brought: dict[int, str]) -> Files:
    """What DETAIL prints on every rank: itself, and the first rank that differs."""

    def shown(rank: int) -> str:
        return (
            f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=7, {brought[rank]}, "
            "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"
        )

    texts = {}
    for rank, mine in brought.items():
        other = next(r for r, theirs in brought.items() if theirs != mine)
        words = f"Detected mismatch between collectives on ranks. {shown(rank)}, but {shown(other)}."
        texts[rank] = f"[rank{rank}]: RuntimeError: {words}Collectives differ in the following aspects: \t x\n"
    return ranks(len(brought), texts)


def steps(count: int, loss: str = "2.31", total: int = 1000, first: int = 0) -> str:
    return "".join(f"step {i}/{total} loss {loss}\n" for i in range(first, first + count))


def is_on_known_messages(rule: ModuleType) -> bool:
    """Whether a rule judges by known messages."""
    if (row := rows().get(rule.CODE)) is not None:
        return row.judge in ("messages", "output")
    return hasattr(rule, "known_messages") or "building.judged(" in inspect.getsource(rule)
