"""A frozen set of cases that is scored once: the figure counts as blind the first time only.

The set is a folder with one folder per case (the evidence and its truth.yaml). Each scoring appends one line to a
record: date, version, a hash of every byte of the set, and the figures. A second scoring of the same set, or of a set
that changed after it was scored, is marked `used`: whoever reads the record sees which figure nobody tuned for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from whichrank import __version__
from whichrank.lab import truth
from whichrank.lab.truth import Truth
from whichrank.model.errors import UsageError
from whichrank.model.verdict import Verdict
from whichrank.timeline.identity.who import short_name

CONFIDENT = 0.7
"""A wrong answer above this, with the truth not even listed, is the worst kind of miss."""

Use = Literal["blind", "used"]


@dataclass(frozen=True, slots=True)
class Scored:
    """One case of the set."""

    name: str
    truth: Truth
    hosts: tuple[str, ...]
    verdict: Verdict

    @property
    def causes(self) -> set[str]:
        return {self.truth.cause, *self.truth.accept}

    @property
    def right(self) -> bool:
        return self.verdict.cause in self.causes

    @property
    def listed(self) -> bool:
        return self.right or any(a.cause in self.causes for a in self.verdict.alternatives)

    @property
    def category(self) -> bool:
        return self.verdict.category == self.truth.category

    @property
    def exact(self) -> bool:
        """The ranks exactly; candidates count where no rank is named as certain. Unknown ranks: the hosts."""
        guilty = self.truth.culprit_ranks
        named = self.verdict.culprits.ranks or self.verdict.culprits.candidates
        by_host = bool(self.hosts) and self._named_hosts == {short_name(host) for host in self.hosts}
        return (guilty is None and not self.hosts) or (guilty is not None and set(named) == set(guilty)) or by_host

    @property
    def accused(self) -> bool:
        guilty = self.truth.culprit_ranks
        ranks = guilty is not None and bool(set(self.verdict.culprits.ranks) - set(guilty))
        return ranks or (bool(self.hosts) and bool(self._named_hosts - {short_name(host) for host in self.hosts}))

    @property
    def _named_hosts(self) -> set[str]:
        return {short_name(host) for host in self.verdict.culprits.hosts}

    @property
    def confident_error(self) -> bool:
        return not self.listed and self.verdict.confidence > CONFIDENT

    def as_json(self) -> dict[str, Any]:
        found = self.verdict
        return {
            "case": self.name,
            "truth": {"category": self.truth.category, "cause": self.truth.cause, "accept": list(self.truth.accept),
                      "ranks": None if self.truth.culprit_ranks is None else list(self.truth.culprit_ranks),
                      "hosts": list(self.hosts)},
            "verdict": {"category": found.category, "cause": found.cause, "ranks": list(found.culprits.ranks),
                        "candidates": list(found.culprits.candidates), "hosts": list(found.culprits.hosts),
                        "confidence": round(found.confidence, 2),
                        "alternatives": [a.cause for a in found.alternatives]},
            "right": self.right, "listed": self.listed, "category": self.category, "exact": self.exact,
            "accused": self.accused, "confident_error": self.confident_error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One scoring of one set."""

    name: str
    digest: str
    use: Use
    date: str
    cases: tuple[Scored, ...]

    def totals(self, cases: Iterable[Scored] | None = None) -> dict[str, int]:
        chosen = list(self.cases if cases is None else cases)
        counted = ("right", "listed", "category", "exact", "accused", "confident_error")
        return {"cases": len(chosen)} | {what: sum(getattr(case, what) for case in chosen) for what in counted}

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "tool": {"name": "whichrank", "version": __version__},
            "set": self.name,
            "sha256": self.digest,
            "use": self.use,
            "date": self.date,
            "totals": self.totals(),
            "misses": [c.as_json() for c in self.cases if not (c.right and c.category and c.exact)],
        }

    def text(self) -> list[str]:
        total = self.totals()
        n = total["cases"]
        lines = [f"{self.name}: {n} cases, {self.use}, {self.date}, sha256 {self.digest[:12]}\n"]
        words = {"right": "cause first", "listed": "cause listed", "category": "category", "exact": "exact culprits",
                 "accused": "somebody innocent accused", "confident_error": "confident errors"}  # fmt: skip
        lines += [f"  {shown:26} {total[what]:4} of {n}\n" for what, shown in words.items()]
        for case in self.cases:
            if not (case.right and case.category and case.exact):
                found = case.verdict
                lines.append(
                    f"  {case.name}: {found.category} {found.cause} {list(found.culprits.ranks)} "
                    f"{round(found.confidence, 2)}; truth {case.truth.category} {case.truth.cause} "
                    f"{list(case.truth.culprit_ranks or ())} {' '.join(case.hosts)}\n"
                )
        return lines


def digest_of(folder: Path) -> str:
    """A hash of every name and every byte below a folder."""
    total = sha256()
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{file.relative_to(folder)}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def score(folder: Path, record: Path, tell: Callable[[str], None]) -> Record:
    """Judge every case of the set and append the figures to the record."""
    from whichrank.flows.diagnose.pipeline import diagnose

    cases = sorted(folder.rglob("truth.yaml"))
    if not cases:
        raise UsageError(f"{folder} holds no case", "Each case is a folder with its evidence and a truth.yaml.")
    digest, before = digest_of(folder), _earlier(record, folder.name)
    scored = []
    for file in cases:
        tell(f"{file.parent.name} …")
        verdict = diagnose([p for p in sorted(file.parent.iterdir()) if p != file]).verdict
        scored.append(Scored(str(file.parent.relative_to(folder)), truth.read(file), truth.hosts(file), verdict))
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = Record(folder.name, digest, "used" if before else "blind", now, tuple(scored))
    with record.open("a", encoding="utf-8") as out:
        out.write(json.dumps(found.as_json()) + "\n")
    return found


def _earlier(record: Path, name: str) -> bool:
    """Whether the set was scored before: also when it was changed since, for then somebody looked at it."""
    if not record.exists():
        return False
    try:
        lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines() if line.strip()]
        return any(line["set"] == name for line in lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{record} is not a record of scores: {error}", "Name another file with --record.") from error
