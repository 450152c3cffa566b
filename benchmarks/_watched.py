"""Start a job under `whichrank run` from a checkout, also where whichrank and its command line are not installed."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from whichrank.evidence.collectors import processes  # noqa: E402

# The same call as the command's own, for a machine without click and rich.
_PLAIN = """
import sys
from pathlib import Path
from whichrank.run.watch.session import Wish, run
sys.exit(run(sys.argv[2:], Path(sys.argv[1]), Wish(), tell=lambda line: print(line, file=sys.stderr)) & 255)
"""


def command(folder: Path) -> list[str]:
    """What goes before the job's own command."""
    if importlib.util.find_spec("click") is None:
        return [sys.executable, "-c", _PLAIN, str(folder)]
    return [sys.executable, "-m", "whichrank", "run", "--no-history", "--out", str(folder), "--"]


def end(watched: subprocess.Popen[bytes]) -> None:
    """End a watched job with all that it started, whatever state that is in."""
    everyone = processes.everybody()
    for pid in [watched.pid, *processes.below(watched.pid, everyone)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    watched.wait()


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
