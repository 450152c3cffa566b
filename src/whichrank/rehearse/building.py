"""A finding of a rehearsal: the cause, the ranks, the lines that prove it."""

from __future__ import annotations

from typing import Any

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, CodePlace, Finding, Grade, Hold, Subject
from whichrank.rehearse import parting, view, wording
from whichrank.rehearse.causes import CODES
from whichrank.rehearse.positions import Made, Position

CATEGORY: dict[str, Category] = {
    "size-mismatch": "corruption",
    "dtype-mismatch": "corruption",
    "root-mismatch": "corruption",
    "reduce-op-mismatch": "corruption",
    "replica-divergence": "corruption",
    "rank-exception": "crash",
    "rank-native-crash": "crash",
    "unused-parameters": "crash",
    "invalid-collective-call": "crash",
}


def finding_of(
    cause: str, culprits: tuple[int, ...], victims: tuple[int, ...], message: str, refs: list[Ref],
    *, grade: Grade = Grade.PROVES, certificate: tuple[Hold, ...] = (),
) -> Finding:  # fmt: skip
    places = tuple(
        CodePlace(ref.source, int(ref.locator.removeprefix("line ")), "", ref.rank)
        for ref in refs
        if ref.locator.removeprefix("line ").isdigit() and ref.locator != "line 0"
    )
    return Finding(
        CODES[cause], cause, CATEGORY.get(cause, "hang"), "error", grade, Subject(ranks=culprits, code=places[:1]),
        message, tuple(refs) or (Ref("the rehearsal", "end", message),), wording.fixes(cause), victims,
        certificate=certificate, kind="records",
    )  # fmt: skip


def call_ref(rank: int, call: Made) -> Ref:
    place = call.place
    if place is None:
        return Ref(call.via or "a library", f"call {call.seq}", call.name, rank)
    return Ref(place.file, f"line {place.line}", view.source_line(place.file, place.line) or call.name, rank)


def rank_ref(position: Position, what: str) -> Ref:
    place = position.place
    if place is None:
        return Ref("the script", f"rank {position.rank}", what or position.state, position.rank)
    return Ref(place.file, f"line {place.line}", view.source_line(place.file, place.line) or what, position.rank)


def rank_refs(positions: dict[int, Position], *sides: Any) -> list[Ref]:
    return [rank_ref(positions[side[0]], positions[side[0]].what) for side in sides if side and side[0] in positions]


def parting_refs(parted: parting.Parting, positions: dict[int, Position]) -> list[Ref]:
    """The call that does not fit first: the one made too much, else the one left out."""
    ours = [call_ref(parted.others[0], parted.call)] if parted.others else []
    theirs = [call_ref(parted.deviating[0], parted.theirs)] if parted.theirs is not None else []
    if not theirs:
        theirs = [rank_ref(positions[parted.deviating[0]], "ended")]
    return theirs + ours if parted.manner == "added" else ours + theirs
