"""A rehearsal from beginning to end: once as the script is, then with one thing changed at a time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whichrank.model.errors import UsageError
from whichrank.model.evidence import Coverage, Skipped, Source
from whichrank.model.findings import Finding
from whichrank.rehearse import explore, imports, scratch
from whichrank.rehearse.explore import Exploration
from whichrank.rehearse.judge import Judgement, judge
from whichrank.rehearse.stage import GRACE_S, Stage, StageError, interpreter

Tell = Callable[[str], None]
MOST_WORKERS_AT = 16
"""With more ranks than this, data loaders work without processes of their own."""


@dataclass(frozen=True, slots=True)
class Options:
    script: Path
    arguments: tuple[str, ...] = ()
    world: int = 4
    limit_s: float = 110.0
    steps: int | None = None
    explorations: int = 6
    python: str | None = None
    log: Path | None = None
    namespaces: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """One rehearsal of the script."""

    what: str
    outcome: str
    seconds: float
    steps: int
    calls: int


@dataclass(slots=True)
class Outcome:
    """What came of it all."""

    script: str
    world: int
    rehearsed: bool = False
    reason: str = ""
    divergence: dict[str, Any] | None = None
    findings: list[Finding] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    torch: str | None = None

    @property
    def coverage(self) -> Coverage:
        complete = self.rehearsed and self.runs and self.runs[0].outcome == "finished"
        quality: Any = "complete" if complete else "partial" if self.rehearsed else "unusable"
        note = "; ".join([self.reason, *self.notes] if self.reason else self.notes)
        found = tuple(sorted({finding.code for finding in self.findings}))
        return Coverage((Source(self.script, "rehearsal", quality, note),), found, (), tuple(self.skipped))


def rehearse(options: Options, tell: Tell = lambda _: None) -> Outcome:
    """Rehearse a script; what can't be followed is said, never passed over."""
    script = options.script.resolve()
    if not script.is_file():
        raise UsageError(f"there is no script {options.script}", "Give the Python file that torchrun would start.")
    outcome = Outcome(str(options.script), options.world)
    began = time.monotonic()
    tell("importing torch and what the script imports")
    with tempfile.TemporaryDirectory(prefix="whichrank-scratch-") as folder:
        try:
            _on_stage(options, script, Path(folder), outcome, tell, began)
        except StageError as error:
            outcome.rehearsed, outcome.reason = False, error.message
    return outcome


def _on_stage(options: Options, script: Path, folder: Path, outcome: Outcome, tell: Tell, began: float) -> None:
    setup = _setup(options, script, folder, namespaces=options.namespaces)
    with Stage(setup, interpreter(options.python)) as stage:
        if not stage.ready["files"] and options.namespaces:
            _play(options, stage, outcome, tell, began)
            return
    notes = scratch.copy(script.parent, folder / "copy")
    outcome.notes += [f"namespaces are not available ({stage.ready['files']}): rehearsed in a scratch copy", *notes]
    with Stage(
        _setup(options, folder / "copy" / script.name, folder, namespaces=False), interpreter(options.python)
    ) as stage:
        _play(options, stage, outcome, tell, began)
        outcome.findings = [
            explore.moved(finding, str(folder / "copy"), str(script.parent)) for finding in outcome.findings
        ]


def _setup(options: Options, script: Path, folder: Path, *, namespaces: bool) -> dict[str, Any]:
    cwd = Path.cwd() if namespaces else script.parent
    return {
        "namespaces": namespaces,
        "script": str(script),
        "arguments": list(options.arguments),
        "cwd": str(cwd),
        "path": [str(script.parent)],
        "roots": sorted({f"{script.parent}/", f"{cwd}/"}),
        "scratch": str(folder),
        "world": options.world,
        "workers": 1 if options.world <= MOST_WORKERS_AT else 0,
        "preload": imports.imported(script),
        "port": 29500,
        "log": str(options.log.resolve()) if options.log else None,
    }


def _play(options: Options, stage: Stage, outcome: Outcome, tell: Tell, began: float) -> None:
    outcome.torch = stage.ready.get("torch")
    end = began + options.limit_s
    tell(f"rehearsing with {options.world} ranks")
    plain = {"launcher": "torchrun", "steps": options.steps}
    record, judgement = _one(stage, plain, end, "as it is", outcome)
    if record["outcome"] == "spawn":
        plain["launcher"] = "script"
        outcome.runs.clear()
        record, judgement = _one(stage, plain, end, "as it is", outcome)
    outcome.world = record.get("world") or options.world
    if outcome.world != options.world:
        outcome.notes.append(f"the script started {outcome.world} ranks itself")
    outcome.rehearsed, outcome.reason = judgement.followed, judgement.reason
    outcome.divergence = judgement.divergence
    outcome.findings += judgement.findings
    if record["outcome"] == "limit":
        reached = max((told["steps"] for told in record["ranks"].values()), default=0)
        outcome.notes.append(
            f"stopped by the time limit after {reached} optimizer steps; what comes later was not rehearsed"
        )
        outcome.notes += explore.busy(record)
    if judgement.followed and not judgement.findings:
        _explore(options, stage, outcome, plain, record, end, tell)


def _one(
    stage: Stage, request: dict[str, Any], end: float, what: str, outcome: Outcome
) -> tuple[dict[str, Any], Judgement]:
    limit = max(3.0, end - time.monotonic() - 3.0)
    record = stage.ask({**request, "limit_s": min(limit, request.get("limit_s", limit))}, limit + GRACE_S)
    ranks = record.get("ranks", {}).values()
    steps, calls = max((r["steps"] for r in ranks), default=0), sum(r["calls"] for r in ranks)
    outcome.runs.append(Run(what, record["outcome"], record.get("seconds", 0.0), steps, calls))
    return record, judge(record)


def _explore(
    options: Options,
    stage: Stage,
    outcome: Outcome,
    plain: dict[str, Any],
    record: dict[str, Any],
    end: float,
    tell: Tell,
) -> None:
    """One thing changed at a time; a finding only if the program goes on and the ranks part."""
    took = record["seconds"]
    planned = explore.plan(record, options.explorations)
    for exploration in planned:
        patience = min(end - time.monotonic() - 4.0, 5.0 + 2.0 * took)
        if patience < 3.0:
            outcome.skipped.append(Skipped("explorations", f"time: {exploration.what} was not tried"))
            continue
        tell(f"what if {exploration.what}")
        request = {**plain, "explore": exploration.request, "limit_s": patience}
        request["steps"] = min(options.steps or exploration.steps, exploration.steps)
        tried, judgement = _one(stage, request, end, f"what if {exploration.what}", outcome)
        if explore.counts(tried, exploration):
            _add(outcome, judgement, exploration)
    if options.explorations and not planned:
        outcome.skipped.append(Skipped("explorations", "nothing to vary: no loss, loader or handler was seen"))


def _add(outcome: Outcome, judgement: Judgement, exploration: Exploration) -> None:
    known = {(finding.cause, finding.evidence[0].locator) for finding in outcome.findings}
    for finding in judgement.findings:
        if (finding.cause, finding.evidence[0].locator) in known:
            continue
        if finding.cause in explore.OF_THE_CHANGE and exploration.request["kind"] != "seed":
            continue
        outcome.findings.append(
            replace(
                finding,
                severity="warning",
                grade=finding.grade.lowered(),
                message=f"If {exploration.what}: {finding.message}",
            )
        )
        outcome.divergence = outcome.divergence or judgement.divergence
