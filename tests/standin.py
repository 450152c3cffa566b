"""Diagnoses made by hand, for tests of what is told and how, not of what is found."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from whichrank.model.evidence import Coverage, Ref, Skipped, Source
from whichrank.model.findings import (
    Alternative,
    CodePlace,
    Endpoint,
    Finding,
    Gpu,
    Grade,
    Hold,
    Link,
    NextStep,
    Subject,
)
from whichrank.model.verdict import (
    Diagnosis,
    Diverged,
    GroupInfo,
    JobInfo,
    Position,
    RankInfo,
    Verdict,
    Wait,
)

LINE = CodePlace("/opt/job/train.py", 118, "sync_grads", 2)
PROOF = (
    Ref("fr_0", "entry 15", "all_reduce 5 of default_pg, scheduled, never completed", rank=0),
    Ref("fr_2", "entry 14", "all_gather 4 of tp", rank=2, host="node7", time="2026-01-01T02:47:00Z"),
)


def finding(cause: str = "conditional-collective", **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "COLL101",
        "cause": cause,
        "category": "hang",
        "severity": "error",
        "grade": Grade.PROVES,
        "subject": Subject(ranks=(2,)),
        "message": "rank 2 never issued all_reduce 5 of default_pg",
        "evidence": PROOF,
        "fix": ("Make the branch agree on all ranks.",),
    }
    return Finding(**{**values, **changes})


def hang() -> Diagnosis:
    """Everything that a diagnosis can hold."""
    verdict = Verdict(
        category="hang",
        cause="conditional-collective",
        culprits=Subject(
            ranks=(2,),
            hosts=("node7",),
            gpus=(Gpu("node7", 3),),
            links=(Link(Endpoint("node7", "mlx5_0"), Endpoint("node8", "mlx5_1")),),
            code=(LINE,),
        ),
        victims=(0, 1, 3),
        confidence=0.92,
        summary="Rank 2 skipped all_reduce 5 of the world in sync_grads (train.py:118); ranks 0, 1, 3 wait.",
        fix=("Make the branch agree on all ranks.", "Or call the collective always."),
        alternatives=(Alternative("uneven-inputs", "rank 2 may have had one batch less", 0.05),),
        certificate=(Hold(2, "tp 4", "world 5", LINE), Hold(3, "world 5", "tp 4")),
    )
    further = Verdict("slow", "straggler", Subject(ranks=(1,)), (), 0.6, "Rank 1 is late in every step.")
    waiting = finding("collective-desync", code="COLL109", severity="info", message="rank 3 is not in tp 4")
    return Diagnosis(
        verdict=verdict,
        findings=(finding(), waiting),
        consequence_of={1: (0,)},
        incidents=(further,),
        next=(NextStep("py-spy dump --pid 760", "shows the branch that rank 2 took", ("uneven-inputs",), "pauses"),),
        job=JobInfo(4, ("gloo",), "2.13.0", hosts=("node7", "node8")),
        ranks=(
            RankInfo(2, "node7", 760, 3, {"tp": 0, "dp": 1}, "waiting", Position("g2", 4, "all_gather")),
            RankInfo(3),
        ),
        groups=(
            GroupInfo("g0", "0", "default_pg", (0, 1, 2, 3), 4, Diverged(5, "all_reduce", (0, 1, 3), (2,))),
            GroupInfo("g2", "2", "tp", (2, 3), 3),
        ),
        waits=(Wait(0, "g0", 5, "all_reduce", (2,)),),
        coverage=Coverage(
            sources=(
                *(Source(f"fr_{rank}", "flight_recorder", "complete") for rank in range(3)),
                Source("fr_3", "flight_recorder", "partial", "cut after 14 entries"),
                Source("evil", "flight_recorder", "unusable", "names a class"),
                Source("notes.txt", "", "ignored"),
            ),
            found=("COLL101",),
            clear=("COLL102",),
            not_evaluated=(Skipped("SLOW101", "timing of the collectives"),),
        ),
    )


def large(world: int = 16_384) -> Diagnosis:
    """Many of everything."""
    culprits = tuple(range(0, world, 3))
    victims = tuple(rank for rank in range(world) if rank % 3)
    refs = tuple(Ref(f"fr_{rank}", "entry 1", "all_reduce 5 " * 50, rank=rank) for rank in range(200))
    return Diagnosis(
        verdict=Verdict(
            "hang",
            "uneven-inputs",
            Subject(ranks=culprits),
            victims,
            0.97,
            "A third of the ranks ran out of data.",
        ),
        findings=tuple(finding("uneven-inputs", evidence=refs) for _ in range(40)),
        job=JobInfo(world, ("nccl",), hosts=tuple(f"node{number}" for number in range(world // 8))),
        ranks=tuple(RankInfo(rank, f"node{rank // 8}") for rank in range(world)),
        coverage=Coverage(
            tuple(Source(f"fr_{rank}", "flight_recorder", "partial", f"cut at {rank}") for rank in range(world))
        ),
    )


def healthy() -> Diagnosis:
    return Diagnosis(
        verdict=Verdict("healthy", "healthy", Subject(), (), 0.9, "Nothing wrong was found in 4 dumps."),
        job=JobInfo(4, ("nccl",)),
        coverage=Coverage(tuple(Source(f"fr_{rank}", "flight_recorder", "complete") for rank in range(4))),
    )


def unknown() -> Diagnosis:
    step = NextStep("py-spy dump --pid PID", "shows what rank 3 does", ("gpu-kernel-stuck",), "pauses")
    return Diagnosis(
        verdict=Verdict("unknown", "", Subject(), (), 0.0, "These files don't say which rank is to blame."),
        next=(step,),
        coverage=Coverage((Source("a.bin", "", "ignored", "no reader knows it"),)),
    )


def replace_flow(diagnose: Any) -> None:
    """Let the command call this function as its flow; for a process of its own."""
    module = ModuleType("whichrank.flows.diagnose.pipeline")
    module.diagnose = diagnose  # type: ignore[attr-defined]
    for package in ("whichrank.flows", "whichrank.flows.diagnose"):
        sys.modules[package] = ModuleType(package)
    sys.modules["whichrank.flows.diagnose.pipeline"] = module
