"""What rules on the records of guards share: how a difference is told, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.findings import (
    Alternative,
    Category,
    CodePlace,
    Finding,
    Gpu,
    Grade,
    NextStep,
    NotEvaluated,
    Subject,
    Witness,
)
from whichrank.rules.wording import ranks_text
from whichrank.timeline.case import Case
from whichrank.timeline.guard.compare import Comparison, Saved
from whichrank.timeline.guard.wrong import Kind, Wrong

NONE = NotEvaluated("records of a guard of at least two ranks (whichrank run --guard)")


def wrongs(case: Case, *kinds: Kind) -> list[Wrong] | NotEvaluated:
    """Differences of these kinds, first step first."""
    guarded = case.guarded
    if guarded is None:
        return NONE
    return [wrong for wrong in guarded.wrongs() if wrong.kind in kinds]


def who(wrong: Wrong) -> str:
    """`Rank 2`, `Rank 0 or rank 1`, `Ranks 0-3`: who is meant, at the beginning of a sentence."""
    if wrong.odd:
        return ranks_text(wrong.odd).capitalize()
    if len(wrong.among) == 2:
        return f"Rank {wrong.among[0]} or rank {wrong.among[1]}"
    return ranks_text(wrong.among).capitalize()


def since(wrong: Wrong) -> str:
    """`since step 18 (equal until step 10)`."""
    first = "from the start" if wrong.step < 0 else f"at step {wrong.step}"
    if wrong.good is None or wrong.good == wrong.step:
        return first
    return f"{first} (still equal {'at the start' if wrong.good < 0 else f'at step {wrong.good}'})"


def replayed_otherwise(case: Case, wrong: Wrong) -> bool:
    """Whether one of these ranks computed the micro-batch of that step again and got something else."""
    replays = case.guarded.replays if case.guarded is not None else []
    return any(
        f.rank in wrong.odd and n.said["s"] == wrong.step and not n.said["same"] and n.said.get("means") != "code"
        for f, n in replays
    )


def last_good(guarded: Comparison, wrong: Wrong) -> Saved | None:
    """The newest checkpoint that was written while all was still well."""
    good = wrong.step - 1 if wrong.kind == "nan" else wrong.good
    limit = good + 1 if good is not None else 0
    fit = [saved for saved in guarded.saves if saved.step <= limit and saved.rank not in wrong.odd]
    return max(fit, key=lambda saved: (saved.step, -saved.rank), default=None)


def go_back(case: Case, wrong: Wrong) -> str:
    """The sentence on checkpoints."""
    guarded = case.guarded
    saved = last_good(guarded, wrong) if guarded is not None else None
    if saved is not None:
        return f"Go back to {saved.path}, written after {saved.step} steps: the last checkpoint known to be good."
    if guarded is not None and guarded.saves:
        return "Don't use the checkpoints of this run: none was written while all was still known to be well."
    return "Go back to a checkpoint from before that step."


def witnesses(wrong: Wrong) -> tuple[Witness, ...]:
    """The certificate: what each rank had, the odd ones first."""
    ordered = sorted(wrong.values, key=lambda rank: (rank not in wrong.odd, rank))
    return tuple(Witness(rank, wrong.step, wrong.module, wrong.tensor, wrong.values[rank]) for rank in ordered)


def subject(case: Case, wrong: Wrong, *, gpu: bool = False, code: Sequence[str] = ()) -> Subject:
    places = tuple(place for text in code if (place := place_of(text, wrong.odd[0] if wrong.odd else None)) is not None)
    gpus: tuple[Gpu, ...] = ()
    if gpu and case.guarded is not None:
        files = [case.guarded.files[rank] for rank in wrong.odd if rank in case.guarded.files]
        gpus = tuple(Gpu(f.host or "", f.gpu, f.gpu_uuid) for f in files if f.gpu is not None)
    pair = wrong.pair if len(wrong.pair) < max(case.world, 3) else ()
    return Subject(ranks=wrong.odd, candidates=() if wrong.odd else pair, gpus=gpus, code=places)


def place_of(text: str, rank: int | None) -> CodePlace | None:
    """`/srv/train.py:12 step` as a place."""
    place, _, function = text.rpartition(" ")
    file, _, line = place.rpartition(":")
    return CodePlace(file, int(line), function, rank) if file and line.isdecimal() and len(line) < 9 else None


def found(  # noqa: PLR0913
    case: Case, wrong: Wrong, code: str, cause: str, message: str, grade: Grade, fix: tuple[str, ...], *,
    category: Category = "corruption", severe: bool = True, gpu: bool = False, places: Sequence[str] = (),
    alternatives: tuple[Alternative, ...] = (), next: tuple[NextStep, ...] = (),  # noqa: A002
) -> Finding:  # fmt: skip
    return Finding(
        code=code,
        cause=cause,
        category=category,
        severity="error" if severe else "warning",
        grade=grade,
        subject=subject(case, wrong, gpu=gpu, code=places),
        message=message,
        evidence=tuple(wrong.refs),
        fix=fix,
        victims=tuple(rank for rank in wrong.among if rank not in wrong.odd) if wrong.odd else (),
        alternatives=alternatives,
        next=next,
        certificate=witnesses(wrong),
        kind="records",
    )
