"""JSON for programs: every documented key is there, null when unknown; ids of findings are f0, f1, …"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from whichrank import __version__
from whichrank.model.evidence import Coverage, Ref
from whichrank.model.findings import CodePlace, Endpoint, Finding, Hold, NextStep, Subject, Witness
from whichrank.report._safe_json import safe_json

if TYPE_CHECKING:
    from whichrank.model.verdict import (
        Argument,
        Diagnosis,
        GroupInfo,
        Hypothesis,
        JobInfo,
        Position,
        RankInfo,
        Verdict,
        Wait,
    )

NAME = "json"
SCHEMA_VERSION = 1


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The document, indented by two."""
    import msgspec

    document = as_document(diagnosis)
    # Ranks and numbers may come from numpy columns: anything that is an integer is written as one.
    try:
        encoded = msgspec.json.encode(document, enc_hook=operator.index)
    except UnicodeEncodeError:  # A lone surrogate from a file name or a quote.
        encoded = msgspec.json.encode(writable(document), enc_hook=operator.index)
    yield safe_json(msgspec.json.format(encoded, indent=2).decode()) + "\n"


def as_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as the plain values that the schema `diagnose` describes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "whichrank", "version": __version__},
        "verdict": verdict(diagnosis.verdict),
        "incidents": [verdict(further) for further in diagnosis.incidents],
        "next": [next_step(step) for step in diagnosis.next],
        "job": _job(diagnosis.job),
        "ranks": [_rank(info) for info in diagnosis.ranks],
        "groups": [_group(info) for info in diagnosis.groups],
        "waits": [_wait(wait) for wait in diagnosis.waits],
        "standings": [{"place": s.place, "doing": s.doing, "ranks": list(s.ranks)} for s in diagnosis.standings],
        "differing_values": [
            {"name": d.name, "code": _code(d.place), "value": d.value, "others": d.others}
            for d in diagnosis.differing_values
        ],
        "excerpts": [
            {"code": _code(e.place), "path": e.path, "first": e.first, "lines": list(e.lines), "said": list(e.said)}
            for e in diagnosis.excerpts
        ],
        "findings": [
            finding(index, found, diagnosis.consequence_of.get(index, ()))
            for index, found in enumerate(diagnosis.findings)
        ],
        "phases": [
            {"phase": p.phase, "ranks": list(p.ranks), "since": p.since, "evidence": _ref(p.evidence)}
            for p in diagnosis.phases
        ]
        or None,
        "hypotheses": [_hypothesis(h) for h in diagnosis.hypotheses] or None,
        "coverage": coverage(diagnosis.coverage),
    }


def _hypothesis(told: Hypothesis) -> dict[str, Any]:
    return {
        "cause": told.cause,
        "ranks": list(told.ranks),
        "confidence": _probability(told.confidence),
        "for": [_argument(argument) for argument in told.arguments_for],
        "against": [_argument(argument) for argument in told.arguments_against],
    }


def _argument(told: Argument) -> dict[str, Any]:
    return {
        "code": told.code or None,
        "grade": told.grade.word,
        "kind": told.kind,
        "says": told.says,
        "phase": told.phase,
        "evidence": [_ref(ref) for ref in told.evidence],
    }


def verdict(told: Verdict) -> dict[str, Any]:
    return {
        "category": told.category,
        "cause": told.cause or None,
        "culprits": subject(told.culprits),
        "victims": {"ranks": list(told.victims)},
        "confidence": _probability(told.confidence),
        "summary": told.summary,
        "fix": list(told.fix),
        "alternatives": [
            {"cause": other.cause, "confidence": _probability(other.confidence), "why": other.why}
            for other in told.alternatives
        ],
        "certificate": [_link(link) for link in told.certificate] or None,
    }


def subject(meant: Subject) -> dict[str, Any]:
    return {
        "ranks": list(meant.ranks),
        "candidates": list(meant.candidates),
        "hosts": list(meant.hosts),
        "gpus": [{"host": gpu.host, "index": gpu.index, "uuid": gpu.uuid} for gpu in meant.gpus],
        "links": [{"a": _endpoint(link.a), "b": _endpoint(link.b)} for link in meant.links],
        "code": [_code(place) for place in meant.code],
    }


def finding(index: int, found: Finding, follows: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "id": f"f{index}",
        "code": found.code,
        "cause": found.cause or None,
        "severity": found.severity,
        "confidence": _probability(found.confidence),
        "subject": subject(found.subject),
        "message": found.message,
        "evidence": [_ref(ref) for ref in found.evidence],
        "fix": list(found.fix),
        "consequence_of": [f"f{earlier}" for earlier in follows],
    }


def coverage(looked: Coverage) -> dict[str, Any]:
    return {
        "sources": [
            {"path": s.path, "reader": s.reader or None, "quality": s.quality, "note": s.note or None}
            for s in looked.sources
        ],
        "rules": {
            "found": list(looked.found),
            "clear": list(looked.clear),
            "not_evaluated": [{"code": s.code, "missing": s.missing} for s in looked.not_evaluated],
        },
    }


def next_step(step: NextStep) -> dict[str, Any]:
    return {
        "command": step.command,
        "why": step.why,
        "settles": list(step.settles),
        "disturbs": step.disturbs,
    }


def _job(job: JobInfo) -> dict[str, Any]:
    return {
        "world_size": job.world_size,
        "backends": list(job.backends),
        "torch": job.torch,
        "nccl": job.nccl,
        "attempt": job.attempt,
        "started": job.started,
        "onset": job.onset,
        "hosts": list(job.hosts),
        "scheduler": asdict(job.scheduler) if job.scheduler is not None else None,
    }


def _rank(info: RankInfo) -> dict[str, Any]:
    return {
        "rank": info.rank,
        "host": info.host,
        "pid": info.pid,
        "gpu": info.gpu,
        "coords": dict(info.coords),
        "state": info.state,
        "at": _position(info.at),
        "after": _position(info.after),
        "seen": info.seen,
    }


def _position(at: Position | None) -> dict[str, Any] | None:
    return None if at is None else {"group": at.group, "seq": at.seq, "op": at.op}


def _group(info: GroupInfo) -> dict[str, Any]:
    apart = info.diverged
    return {
        "id": info.id,
        "name": info.name,
        "desc": info.desc,
        "ranks": list(info.ranks),
        "last_completed": info.last_completed,
        "diverged": None
        if apart is None
        else {"seq": apart.seq, "op": apart.op, "joined": list(apart.joined), "absent": list(apart.absent)},
    }


def _wait(wait: Wait) -> dict[str, Any]:
    where = {"rank": wait.rank, "group": wait.group, "seq": wait.seq, "op": wait.op}
    return {**where, "for": list(wait.waits_for)}


def _ref(ref: Ref) -> dict[str, Any]:
    return {
        "source": ref.source,
        "locator": ref.locator,
        "quote": ref.quote,
        "rank": ref.rank,
        "host": ref.host,
        "time": ref.time,
    }


def _link(link: Hold | Witness) -> dict[str, Any]:
    return asdict(link) if isinstance(link, Witness) else _hold(link)


def _hold(hold: Hold) -> dict[str, Any]:
    code = None if hold.code is None else _code(hold.code)
    return {"rank": hold.rank, "holds": hold.holds, "waits": hold.waits, "code": code}


def _code(place: CodePlace) -> dict[str, Any]:
    return {
        "file": place.file,
        "line": place.line,
        "function": place.function or None,
        "rank": place.rank,
    }


def _endpoint(end: Endpoint) -> dict[str, Any]:
    return {"host": end.host, "device": end.device}


def _probability(value: float) -> float:
    """Four digits: more would be pretence."""
    return round(float(value), 4)


def writable(value: Any) -> Any:
    """The same values, with what UTF-8 can't hold spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(key): writable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [writable(inner) for inner in value]
    return value
