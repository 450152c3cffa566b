"""Start a job under `whichrank run` from a checkout, also where whichrank and its command line are not installed."""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The same call as the command's own, for a machine without click and rich.
_PLAIN = """
import sys
from pathlib import Path
from whichrank.run.watch.session import Wish, run
wish = Wish(policy=sys.argv[2])
sys.exit(run(sys.argv[3:], Path(sys.argv[1]), wish, tell=lambda line: print(line, file=sys.stderr)) & 255)
"""


def command(folder: Path, policy: str = "report") -> list[str]:
    """What goes before the job's own command."""
    if importlib.util.find_spec("click") is None:
        return [sys.executable, "-c", _PLAIN, str(folder), policy]
    return [sys.executable, "-m", "whichrank", "run", "--no-history", "--out", str(folder), "--policy", policy, "--"]


def environment(**more: str) -> dict[str, str]:
    """Nothing that changes how the job communicates; the package of this checkout."""
    unwanted = ("TORCH_", "NCCL_", "GLOO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    source = os.pathsep.join([str(ROOT / "src"), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **more}


def interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the median, by resampling."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[-51]
