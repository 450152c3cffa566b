"""Jobs with a guard inside and no watcher outside: the quickest way to many runs of one fault.

    python -m tests.jobs.guarded FAULT[@WORLD][,FAULT…] SEEDS [WORLD] [BACKEND]

Torch is imported once; every run forks its ranks. One JSON text per run.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab import catalogue, place, setup
from whichrank.lab.truth import mark, of_verdict
from whichrank.lab.workloads import plan as plans
from whichrank.report.json import as_document

STEPS_AFTER = 16
PACE_S = 0.02


def run_fault(guard: Any, name: str, seed: int, world: int, backend: str) -> dict[str, Any]:
    """One fault of the lab, and what `diagnose` makes of the guard's records alone."""
    from whichrank.lab.workloads import main

    fault, where = catalogue.find(name), place.make()
    plan = plans.make(name, seed, world, backend)
    plan = plan._replace(steps=plan.step + STEPS_AFTER, pace_s=PACE_S)
    records = where / "records"
    records.mkdir()
    guard.folder = str(records)
    try:
        made = setup.prepare(where, fault, plan, "fork")
        os.environ.update(
            {k: v for k, v in made.variables().items() if k in ("MASTER_PORT", "WORLD_SIZE", "MASTER_ADDR")}
        )
        os.environ[plans.FOLDER] = str(where)
        sys.path.insert(0, str(where / "code"))
        began = time.monotonic()
        code = main.run_all(where, world)
        sys.path.pop(0)
        took = time.monotonic() - began
        document = json.loads(json.dumps(as_document(diagnose([records], jobs=1)), default=int))
        verdict, truth = document["verdict"], fault.truth(plan)
        marked = mark(truth, of_verdict(verdict))
        window = max((json.loads(line).get("k", 0) for path in records.glob("*.guard")
                      for line in path.read_text().splitlines() if '"k":' in line), default=0)  # fmt: skip
        link = (verdict["certificate"] or [{}])[0]
        return {
            "fault": name, "seed": seed, "right": marked.right, "exact": marked.exact, "accused": marked.accused,
            "cause": verdict["cause"], "ranks": verdict["culprits"]["ranks"],
            "candidates": verdict["culprits"]["candidates"], "rank": plan.rank, "struck": plan.step,
            "step": link.get("step"), "module": link.get("module"), "tensor": link.get("tensor"), "window": window,
            "summary": verdict["summary"], "exit_code": code, "seconds": round(took, 1),
        }  # fmt: skip
    finally:
        for name_ in [m for m in sys.modules if m == "training" or m.startswith("training.")]:
            del sys.modules[name_]
        os.environ.pop("RANK", None)
        shutil.rmtree(where, ignore_errors=True)


def main() -> None:
    names, seeds = sys.argv[1].split(","), sys.argv[2]
    world, backend = int(sys.argv[3]) if len(sys.argv) > 3 else 4, (sys.argv[4:] or ["gloo"])[0]
    os.environ.update(OMP_NUM_THREADS="1", WHICHRANK_GUARD_EVERY="1")
    import torch

    from whichrank.worker.guard import arrival

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # ranks look at what is new alone, and share the pages of the rest
    with tempfile.TemporaryDirectory() as folder:
        guard = arrival.begin(folder, "parent", "on")
        first, _, last = seeds.partition("-")
        for seed in range(int(first), int(last or int(first) + 1)):
            for name in names:
                fault, _, size = name.partition("@")
                with redirect_stdout(sys.stderr):
                    outcome = run_fault(guard, fault, seed, int(size or world), backend)
                print(json.dumps(outcome), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "src"))
    main()
