"""Reading profiles beside Meta's HTA, in one run: CPU seconds, memory, and that the answers agree.

    .venv/bin/python benchmarks/trace.py [--hta VENV/bin/python] [--ranks 64] [--large-gb 0] [--trace DIR] [--repeat 5]

The traces are those of WHICHRANK_SHARED (default ../shared). HTA's environment is --hta, WHICHRANK_HTA, or made in
.venv/hta by tools/hta.sh; without traces or HTA, what can't be compared is left out. `--large-gb 20` makes a set of
that size (uncompressed) and reads it, one file per rank. A single trace is read `--repeat` times by each in turn, and
the medians are compared.
The bars: 20 times less CPU than HTA for one trace and for 64 ranks, whose memory is at most a 15th; the large set is
read within 600 MB; shares within 0.1 points.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))
ONE, SET = SHARED / "cases/traces_hta/mtia_single", SHARED / "cases/traces_hta/dlrm16_sendrecv"
HTA_TIMER, GENERATOR = SHARED / "tools/time_hta.py", SHARED / "tools/gen_trace_set.py"
MADE_MB = 20.2
"""Megabytes of each trace of a generated set."""
KEYS = (("compute_pct", "compute_time_pctg"), ("idle_pct", "idle_time_pctg"))


def ours(folder: Path) -> dict:
    """CPU seconds of the command with all of its children, its answer, and the memory of all processes together."""
    command = [sys.executable, "-m", "whichrank", "trace", str(folder), "--format", "json", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    # As installed: modules are compiled once, not in every run.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src")], env=environment, check=False)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    peak = 0
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, env=environment)
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.05)
        out.seek(0)
        answer = out.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": cpu, "wall_s": time.monotonic() - begun, "rss_mb": peak / 1024, "answer": json.loads(answer)}


def memory_of(pid: int) -> int:
    """Proportional memory of a process and its children in KiB: shared pages count once."""
    total = 0
    for one in (pid, *children(pid)):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def hta(python: str, folder: Path) -> dict | None:
    """The same of HTA by the shared timer."""
    with tempfile.TemporaryDirectory() as place:
        results = Path(place) / "results.json"
        environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
        command = [python, str(HTA_TIMER), str(folder), "--repeat", "1", "--rank-map", "--results", str(results)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        try:
            told = json.loads(done.stdout.strip().splitlines()[-1])
            cpu = sum(step["cpu_s"] for step in told["steps"].values())
        except (ValueError, KeyError, IndexError):
            return None
        answer = json.loads(results.read_text())
    return {"cpu_s": cpu, "rss_mb": told["rss_mb"] + told["worker_rss_mb"], "answer": answer}


def compared(name: str, folder: Path, python: str | None, repeat: int = 1) -> None:
    turns = [(ours(folder), hta(python, folder) if python else None) for _ in range(repeat)]
    mine, theirs = turns[0]
    mine = {**mine, **{key: statistics.median(one[key] for one, _ in turns) for key in ("cpu_s", "wall_s", "rss_mb")}}
    line = f"{name}: whichrank {mine['cpu_s']:.2f} s CPU, {mine['wall_s']:.2f} s wall, {mine['rss_mb']:.0f} MB"
    if theirs is not None:
        theirs = {**theirs, "cpu_s": statistics.median(other["cpu_s"] for _, other in turns if other)}
        line += f"; HTA {theirs['cpu_s']:.2f} s CPU, {theirs['rss_mb']:.0f} MB"
        ratios = theirs["cpu_s"] / mine["cpu_s"], theirs["rss_mb"] / mine["rss_mb"]
        line += f"; {ratios[0]:.1f} times less CPU, {ratios[1]:.1f} times less memory"
        line += f"; largest difference of a share {difference(mine['answer'], theirs['answer']):.3f} points"
    print(line, flush=True)


def difference(mine: dict, theirs: dict) -> float:
    ranks = {one["rank"]: one["hta"] for one in mine["ranks"]}
    if len(ranks) == 1:  # HTA goes by the file's name, a single profile may say another rank
        ranks = dict.fromkeys((row["rank"] for row in theirs.get("temporal_breakdown", [])), *ranks.values())
    apart = [0.0]
    for row in theirs.get("temporal_breakdown", []):
        apart += [abs(ranks[row["rank"]][ours_] - row[key]) for ours_, key in KEYS]
    for row in theirs.get("comm_comp_overlap", []):
        told = ranks[row["rank"]]["overlap_pct"]
        if told is not None:
            apart.append(abs(told - row["comp_comm_overlap_pctg"]))
    return max(apart)


def hta_python() -> str | None:
    """The Python of HTA's environment, which is made where there is none yet."""
    place = Path(sys.prefix) / "hta"
    python = place / "bin" / "python"
    if not python.exists():
        print(f"installing HTA into {place} …", flush=True)
        environment = {**os.environ, "PYTHON": sys.executable}
        if subprocess.run([ROOT / "tools" / "hta.sh", place], env=environment, check=False).returncode:
            shutil.rmtree(place, ignore_errors=True)
            return None
    return str(python)


def uncompressed(folder: Path) -> float:
    """Megabytes of the traces in a folder."""
    total = 0
    for file in folder.glob("*.gz"):
        with gzip.open(file) as stream:
            total += stream.seek(0, os.SEEK_END)
    return total / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", default=os.environ.get("WHICHRANK_HTA"))
    parser.add_argument("--trace", type=Path, help="compare on this folder alone")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--large-gb", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    if not chosen.trace and not SET.is_dir():
        print(f"no traces in {SHARED}: nothing to measure")
        return
    python = chosen.hta or hta_python()
    for folder in [chosen.trace] if chosen.trace else [SET, ONE]:
        compared(f"{folder.name}, {uncompressed(folder):.0f} MB", folder, python, chosen.repeat)
    if chosen.trace or python is None:
        return
    with tempfile.TemporaryDirectory() as place:
        if chosen.ranks:
            folder = made(python, Path(place) / "set", chosen.ranks)
            compared(f"{chosen.ranks} ranks, {chosen.ranks * MADE_MB / 1e3:.1f} GB", folder, python)
            shutil.rmtree(folder)
        if chosen.large_gb:
            folder = made(python, Path(place) / "large", round(chosen.large_gb * 1e3 / MADE_MB))
            compared(f"{chosen.large_gb:.0f} GB", folder, None)


def made(python: str, folder: Path, ranks: int) -> Path:
    """A set of so many ranks out of one real trace."""
    source = next(SET.glob("*.gz"))
    command = [python, str(GENERATOR), str(source), str(folder), "--ranks", str(ranks)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


if __name__ == "__main__":
    main()
