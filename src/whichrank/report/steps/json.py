"""JSON of `trace`, as its schema describes it; every documented key is there, null when unknown."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from whichrank import __version__
from whichrank.model.step_report import Advice, CollectiveShare, RankShares, StepReport, Straggler
from whichrank.report import json as base
from whichrank.report._safe_json import safe_json

NAME = "json"


def render(report: StepReport) -> Iterator[str]:
    """The document, indented by two."""
    document = base.writable(as_document(report))  # a file's name may hold what UTF-8 can't
    encoded = msgspec.json.encode(document, enc_hook=operator.index)
    yield safe_json(msgspec.json.format(encoded, indent=2).decode()) + "\n"


def as_document(report: StepReport) -> dict[str, Any]:
    """Plain values."""
    return {
        "schema_version": base.SCHEMA_VERSION,
        "tool": {"name": "whichrank", "version": __version__},
        "step_us": _rounded(report.step_us, 3),
        "world_size": report.world,
        "ranks": [_rank(one) for one in report.ranks],
        "stragglers": [_straggler(one) for one in report.stragglers],
        "advice": [_advice(one) for one in report.advice],
        "collectives": [_collective(one) for one in report.collectives],
        "buckets": [asdict(one) for one in report.buckets],
        "bucket_sizes": [asdict(one) for one in report.bucket_sizes],
        "matched_collectives": report.matched,
        "replay_error_pct": _rounded(report.replay_error_pct, 3),
        "notes": list(report.notes),
        "findings": [base.finding(index, found) for index, found in enumerate(report.findings)],
        "coverage": base.coverage(report.coverage),
    }


def _rank(one: RankShares) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "file": one.file,
        "host": one.host,
        "steps": one.steps,
        "span_us": _rounded(one.span_us, 3),
        "step_us": _rounded(one.step_us, 3),
        "compute_pct": _rounded(one.compute_pct),
        "communication_pct": _rounded(one.communication_pct),
        "exposed_pct": _rounded(one.exposed_pct),
        "memory_pct": _rounded(one.memory_pct),
        "idle_pct": _rounded(one.idle_pct),
        "overlap_pct": _rounded(one.overlap_pct),
        "hta": {key: _rounded(one.hta.get(key)) for key in ("compute_pct", "idle_pct", "overlap_pct")},
        "idle_why_pct": {key: _rounded(value) for key, value in one.idle_why.items()},
        "waiting_pct": _rounded(one.waiting_pct),
        "clock_offset_us": _rounded(one.clock_offset_us, 3),
    }


def _straggler(one: Straggler) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "host": one.host,
        "late_us_per_step": _rounded(one.late_us_per_step, 1),
        "cost_us_per_step": _rounded(one.cost_us_per_step, 1),
        "doing": one.doing,
        "reason": one.reason,
        "steps": one.steps,
        "of_steps": one.of_steps,
    }


def _advice(one: Advice) -> dict[str, Any]:
    return {
        "what": one.what,
        "setting": one.setting,
        "gain_us_per_step": _rounded(one.gain_us_per_step, 1),
        "gain_range_us_per_step": [_rounded(end, 1) for end in one.gain_range_us_per_step]
        if one.gain_range_us_per_step
        else None,
        "confidence": one.confidence,
        "why": one.why or None,
    }


def _collective(one: CollectiveShare) -> dict[str, Any]:
    found = asdict(one)
    return {key: _rounded(value, 3) if isinstance(value, float) else value for key, value in found.items()}


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), digits)
