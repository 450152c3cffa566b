"""What `guard` does: judge the records that guards of ranks have left, or are still writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whichrank.evidence.intake import collect
from whichrank.evidence.readers import guard_records
from whichrank.flows.diagnose.pipeline import conclude
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Source
from whichrank.model.verdict import Diagnosis
from whichrank.records.guard import GuardFile
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case


def read(paths: Sequence[Path]) -> tuple[list[GuardFile], list[Source]]:
    """All records of guards below these paths."""
    files: list[GuardFile] = []
    with collect(list(paths)) as intake:
        sources = list(intake.refused)
        for item in intake.items:
            if not guard_records.sniff(item.head(), item.label):
                continue
            try:
                reading = guard_records.read(item)
            except UnreadableError as error:
                sources.append(Source(item.label, guard_records.NAME, "unusable", error.message))
                continue
            files += reading.records
            sources.append(Source(item.label, guard_records.NAME, reading.quality, reading.note))
    return files, sources


def judge(paths: Sequence[Path]) -> tuple[Diagnosis, dict[str, Any]]:
    """The diagnosis of the records alone, and what was compared."""
    files, sources = read(paths)
    case = build_case(files)
    return conclude(case, sources), measured(case)


def measured(case: Case) -> dict[str, Any]:
    """How much was compared, for those who ask whether silence means something."""
    guarded = case.guarded
    if guarded is None:
        return {"world_size": case.world or None, "ranks": sorted({f.rank for f in case.guards}), "steps": None,
                "window": None, "compared": None, "off": [], "checkpoints": []}  # fmt: skip
    return {
        "world_size": guarded.world,
        "ranks": sorted(guarded.files),
        "steps": guarded.steps + 1,
        "window": guarded.replicas.window or None,
        "compared": {
            "slices": guarded.replicas.compared,
            "gradients": guarded.gradients.compared,
            "collectives": guarded.signatures.compared,
            "replays": len(guarded.replays),
        },
        "off": [{"rank": rank, "why": why} for rank, why in sorted(guarded.off.items())],
        "checkpoints": [{"step": s.step, "path": s.path, "rank": s.rank} for s in guarded.saves[-32:]],
    }
