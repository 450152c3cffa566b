"""Pretend jobs with one known fault each, as cases for `drill score --corpus`: tools/simulated.py FOLDER [COUNT]

The simulator of the tests plays programs of tensor-, data- and pipeline-parallel ranks and writes what each rank's
flight recorder would hold. Seeds count up from a number that no test uses.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.jobs.pretend_dumps import write
from tests.jobs.pretend_plans import random_plan

FIRST = 70_000


def main(words: list[str]) -> int:
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    folder, count = Path(words[0]), int(words[1]) if len(words) > 1 else 60
    shutil.rmtree(folder, ignore_errors=True)
    for seed in range(FIRST, FIRST + count):
        plan = random_plan(seed)
        case = folder / f"{plan.fault}-{seed}"
        case.mkdir(parents=True)
        job = write(plan, case).job
        cause, *others = sorted(job.causes) or ["healthy"]
        truth = {
            "category": "healthy" if cause == "healthy" else "hang",
            "cause": cause,
            "culprit_ranks": sorted(job.culprits),
            "accept": others,
        }
        (case / "truth.yaml").write_text(json.dumps(truth) + "\n", encoding="utf-8")  # JSON is YAML
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
