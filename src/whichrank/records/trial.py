"""What a person reports beside the output: what was tried, and what was seen."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whichrank.model.evidence import Ref

Outcome = Literal["helped", "did not help", "unknown"]
Symptom = Literal["hang", "crash", "slow", "corruption"]


class Trial(Struct, frozen=True):
    """A change (a row of `facts/interventions.csv`) and what came of it."""

    change: str
    outcome: Outcome
    ref: Ref
    seen: bool = False
    """The evidence holds both runs, with the change and without; else somebody says so."""


class Complaint(Struct, frozen=True):
    """What somebody says that the job does."""

    category: Symptom
    ref: Ref
    weight: int = 1
    """More where it stands in the title."""
    phase: str | None = None
    """The cause whose part of the job the sentence speaks of: a checkpoint, an evaluation, …"""
