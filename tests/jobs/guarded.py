"""Jobs with a guard inside and no watcher outside: the quickest way to many runs of one fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.flows.diagnose import diagnose
from whichrank.lab import catalogue, place, setup
from whichrank.lab.truth import Mark, Truth, mark, of_verdict
from whichrank.lab.workloads import plan as plans
from whichrank.lab.workloads.plan import Plan
from whichrank.report.json import as_document
from whichrank.run import private

STEPS_AFTER = 24
PACE_S = 0.03


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    truth: Truth
    verdict: dict[str, Any]
    mark: Mark
    output: str

    @property
    def step(self) -> int | None:
        links = self.verdict["certificate"] or [{}]
        return links[0].get("step")


@contextmanager
def guarded_environment(mode: str = "on"):
    """The variables of a guarded job, and the folder that its ranks write into."""
    folder = private.make()
    try:
        yield folder, {**os.environ, "OMP_NUM_THREADS": "1", **private.variables(folder, os.environ, mode)}
    finally:
        private.remove(folder)


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.guard"))


def run_fault(name: str, seed: int, world: int = 4, backend: str = "gloo") -> Outcome:
    """One fault of the lab, and what `diagnose` makes of the guard's records alone."""
    fault = catalogue.find(name)
    where = place.make()
    plan = plans.make(name, seed, world, backend)
    plan = plan._replace(steps=plan.step + STEPS_AFTER, pace_s=PACE_S)
    try:
        made = setup.prepare(where, fault, plan, "fork")
        with guarded_environment() as (folder, environment):
            variables = {k: v for k, v in environment.items() if k.startswith(("PYTHONPATH", "WHICHRANK"))}
            done = subprocess.run(
                made.command(), env={**made.variables(), **variables}, capture_output=True, text=True, timeout=120,
                cwd=where / "code", check=False,
            )
            bundle = where / "records"
            bundle.mkdir()
            for path in records(folder):
                shutil.copy(path, bundle / path.name)
        document = as_document(diagnose([bundle], jobs=1))
        verdict = json.loads(json.dumps(document["verdict"], default=int))
        truth = fault.truth(plan)
        return Outcome(plan, truth, verdict, mark(truth, of_verdict(verdict)), done.stdout + done.stderr)
    finally:
        shutil.rmtree(where, ignore_errors=True)
