"""Every fault over several seeds and sizes, and recorded cases with their truth: how often is each tool right?"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from whichrank import __version__
from whichrank.lab import peers, place, truth
from whichrank.lab.catalogue import Fault
from whichrank.lab.drill import Launcher, Outcome, drill
from whichrank.lab.truth import Answer, Truth, mark

US = "whichrank"
Tell = Callable[[str], None]
Turn = tuple[Fault, int, int]
"""A fault, a seed and a size."""


@dataclass(frozen=True, slots=True)
class Run:
    """One answer of one tool to one case."""

    case: str
    """The fault or the recorded case."""
    kind: str
    """`drill` or the name of the corpus."""
    detail: str
    """Seed and size, or nothing."""
    tool: str
    truth: Truth
    answer: Answer
    alarm_s: float | None = None
    verdict_s: float | None = None
    """From the fault to the verdict, in a drill."""
    answer_s: float | None = None
    """From the recorded evidence to the answer."""


@dataclass(slots=True)
class Count:
    """The answers of one tool, counted."""

    runs: int = 0
    right: int = 0
    named: int = 0
    """Runs whose truth names ranks: only there a tool can name them exactly. Where nobody is to blame, silence is no
    merit."""
    exact: int = 0
    accused: int = 0
    alarms: list[float] = field(default_factory=list)
    verdicts: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)

    def add(self, run: Run) -> None:
        outcome = mark(run.truth, run.answer)
        self.runs += 1
        self.right += outcome.right
        if run.truth.culprit_ranks:
            self.named += 1
            self.exact += outcome.exact
        self.accused += outcome.accused
        if run.alarm_s is not None:
            self.alarms.append(run.alarm_s)
        if run.verdict_s is not None:
            self.verdicts.append(run.verdict_s)
        if run.answer_s is not None:
            self.answers.append(run.answer_s)

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "right_cause": self.right,
            "culprits_known": self.named,
            "exact_culprits": self.exact,
            "innocents_accused": self.accused,
            "alarm_s": round(median(self.alarms), 1) if self.alarms else None,
            "verdict_s": round(median(self.verdicts), 1) if self.verdicts else None,
            "answer_s": round(median(self.answers), 2) if self.answers else None,
        }


@dataclass(slots=True)
class Board:
    """All runs, and what was left out."""

    backend: str = "gloo"
    runs: list[Run] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    injected: set[str] = field(default_factory=set)
    versions: dict[str, str] = field(default_factory=dict)
    """Of the other tools."""

    @property
    def tools(self) -> list[str]:
        """Ours first."""
        return [US, *sorted({run.tool for run in self.runs} - {US})]

    def count(self, tool: str, kind: str | None = None, case: str | None = None) -> Count:
        total = Count()
        for run in self.runs:
            if run.tool == tool and kind in (None, run.kind) and case in (None, run.case):
                total.add(run)
        return total

    def cases(self, kind: str) -> list[str]:
        return sorted({run.case for run in self.runs if run.kind == kind})

    @property
    def kinds(self) -> list[str]:
        """The drills first, then the corpora."""
        return sorted({run.kind for run in self.runs}, key=lambda kind: (kind != "drill", kind))

    def misses(self, tool: str = US) -> list[Run]:
        """Answers that are not wholly right."""
        found = []
        for run in self.runs:
            outcome = mark(run.truth, run.answer)
            if run.tool == tool and not (outcome.right and outcome.exact):
                found.append(run)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "tool": {"name": US, "version": __version__},
            "backend": self.backend,
            "versions": self.versions,
            "scores": [
                {
                    "kind": kind,
                    "fault": case,
                    "cause": next(r.truth.cause for r in self.runs if r.kind == kind and r.case == case),
                    "injected": case in self.injected,
                    "tools": {tool: self.count(tool, kind, case).as_json() for tool in self.tools},
                }
                for kind in self.kinds
                for case in self.cases(kind)
            ],
            "totals": {kind: {tool: self.count(tool, kind).as_json() for tool in self.tools} for kind in self.kinds},
            "misses": [
                {
                    "tool": run.tool, "kind": run.kind, "fault": run.case, "detail": run.detail,
                    "truth": run.truth.as_json(), "cause": run.answer.cause, "ranks": list(run.answer.ranks),
                    "summary": run.answer.summary,
                }
                for tool in self.tools
                for run in self.misses(tool)
            ],
            "skipped": [{"fault": name, "why": why} for name, why in self.skipped],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be scored."""

    faults: Sequence[Fault]
    seeds: Sequence[int]
    sizes: Sequence[int]
    backend: str = "gloo"
    launcher: Launcher | None = None
    jobs: int = 1
    with_peers: bool = True
    keep: Path | None = None
    """Where the folders of the drills are kept; nowhere by default."""


def score(wanted: Round, corpora: Iterable[Path], tell: Tell) -> Board:
    """Run everything and count; a drill that fails for a reason of its own is named, not counted as right."""
    board = Board(wanted.backend)
    present, absent = peers.present() if wanted.with_peers else ([], [])
    board.skipped += [(f"peer {name}", why) for name, why in absent]
    board.versions = {peer.NAME: peer.version() for peer in present}
    turns: list[Turn] = [turn for fault in wanted.faults for turn in _turns(fault, wanted, board)]
    with ThreadPoolExecutor(max(1, wanted.jobs)) as pool:
        for outcome in pool.map(lambda turn: _drilled(turn, wanted, tell), turns):
            if isinstance(outcome, Outcome):
                board.runs += _judged(outcome, present)
                _put_away(outcome, wanted.keep)
            else:
                board.skipped.append(outcome)
    for corpus in corpora:
        with unpacked(corpus) as folder:
            board.runs += _recorded(folder, corpus_name(corpus), present, tell)
    return board


@contextmanager
def unpacked(corpus: Path) -> Iterator[Path]:
    """A folder of cases, or an archive of one."""
    if corpus.is_dir():
        yield corpus
        return
    with tempfile.TemporaryDirectory(prefix="whichrank-corpus-") as name:
        with tarfile.open(corpus) as archive:
            archive.extractall(name, filter="data")
        yield Path(name)


def corpus_name(corpus: Path) -> str:
    return corpus.name if corpus.is_dir() else corpus.name.partition(".")[0]


def _turns(fault: Fault, wanted: Round, board: Board) -> list[Turn]:
    """Seeds and sizes of a fault; each seed takes the next size."""
    lacking = fault.lacking()
    if wanted.backend not in fault.backends:
        lacking = [f"another backend than {wanted.backend}"]
    if lacking:
        board.skipped.append((fault.name, f"needs {', '.join(lacking)}"))
        return []
    if fault.injected:
        board.injected.add(fault.name)
    sizes = [size for size in wanted.sizes if size >= fault.least_world] or [fault.least_world]
    return [(fault, seed, sizes[index % len(sizes)]) for index, seed in enumerate(wanted.seeds)]


def _drilled(turn: Turn, wanted: Round, tell: Tell) -> Outcome | tuple[str, str]:
    """What came of it, or why it could not be done: the other drills are not lost with it."""
    fault, seed, world = turn
    try:
        outcome = drill(fault, seed, world, backend=wanted.backend, launcher=wanted.launcher, tell=lambda _: None)
    except Exception as error:  # noqa: BLE001 - told in the table
        why = f"could not be made with seed {seed} and {world} ranks: {type(error).__name__}: {error}"
        tell(f"{fault.name} {why}")
        return fault.name, why
    result = outcome.mark
    said = f"{outcome.answer.cause} {list(outcome.answer.ranks)}"
    good = "right" if result.right and result.exact else f"WRONG, truth {outcome.truth.cause}"
    tell(f"{fault.name} seed {seed}, {world} ranks: {said}: {good}")
    return outcome


def _judged(outcome: Outcome, present: Sequence[peers.Peer]) -> list[Run]:
    """Our answer and the peers' to the same bundle."""
    detail = f"seed {outcome.plan.seed}, {outcome.plan.world} ranks"
    shown = (outcome.fault.name, "drill", detail)
    runs = [Run(*shown, US, outcome.truth, outcome.answer, outcome.alarm_s, outcome.verdict_s)]
    bundle = (outcome.folder or Path()) / "out" / "bundle"
    runs += [Run(*shown, peer.NAME, outcome.truth, peer.answer(bundle)) for peer in present]
    return runs


def _put_away(outcome: Outcome, keep: Path | None) -> None:
    if outcome.folder is None:
        return
    if keep is not None:
        name = f"{outcome.fault.name}-seed{outcome.plan.seed}-{outcome.plan.world}"
        shutil.copytree(outcome.folder / "out", keep / name, dirs_exist_ok=True)
        shutil.copy(outcome.folder / "output.log", keep / name / "output.log")
    place.tidy(outcome.folder)


def _recorded(corpus: Path, name: str, present: Sequence[peers.Peer], tell: Tell) -> list[Run]:
    """Cases with a truth.yaml each, wherever they lie below the folder."""
    from whichrank.flows.diagnose.pipeline import diagnose

    runs = []
    for file in sorted(corpus.rglob("truth.yaml")):
        folder, known = file.parent, truth.read(file)
        shown = (str(folder.relative_to(corpus)), name, "")
        began = time.monotonic()
        verdict = diagnose([folder], jobs=1).verdict
        answer = Answer(verdict.cause, tuple(verdict.culprits.ranks), verdict.summary)
        runs.append(Run(*shown, US, known, answer, answer_s=time.monotonic() - began))
        for peer in present:
            began = time.monotonic()
            said = peer.answer(folder)
            runs.append(Run(*shown, peer.NAME, known, said, answer_s=time.monotonic() - began))
        result = mark(known, answer)
        good = "right" if result.right and result.exact else f"WRONG, truth {known.cause}"
        tell(f"{shown[0]}: {answer.cause} {list(answer.ranks)}: {good}")
    return runs
