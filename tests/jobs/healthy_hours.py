"""Hours of healthy jobs under `whichrank run --guard`, at a small share of one CPU: none of them may raise an alarm.

    nice -n 19 python -m tests.jobs.healthy_hours MINUTES [LANES] [SECONDS_PER_JOB] [PACE_S] [FIRST_KIND]

The kinds of `healthy_kinds.py` and the programs of `silent_programs.py` take turns, each in a job of its own; half of
the jobs look at every step, the others as often as the guard chooses. One JSON text per job, and one with their sum at
the end. A job that fails counts as no time. Exit code: the number of alarms and failed jobs, 99 at most.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SRC = HERE.parent.parent / "src"
MUST_STOP_S = 60.0
MOST_FAILED = 20
"""Then none of them says anything about the guard."""


def kinds() -> list[tuple[str, str]]:
    """File and kind, in the order of the files, read without importing torch."""
    found = []
    for file, before in (("healthy_kinds.py", "KINDS = ("), ("silent_programs.py", "for each in (")):
        text = (HERE / file).read_text()
        listed = text[text.index(before) + len(before) :]
        names = listed[: listed.index(")")].replace("\n", " ").split(",")
        found += [(file, name.strip()) for name in names if name.strip()]
    return found


def one_job(file: str, kind: str, seconds: float, pace_s: float, every: str) -> dict[str, Any]:
    """A job of that kind, and what the guard said of it while it ran and afterwards."""
    out = Path(tempfile.mkdtemp(prefix="whichrank-healthy-"))
    steps = max(40, int(seconds / pace_s))
    command = [sys.executable, "-m", "whichrank", "run", "--guard", "--out", str(out / "run"), "--",
               sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--standalone",
               str(HERE / file), str(steps), kind]  # fmt: skip
    path = os.pathsep.join(filter(None, (str(SRC), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HEALTHY_PACE_S": str(pace_s)}
    if every:
        environment["WHICHRANK_GUARD_EVERY"] = every
    began = time.monotonic()
    with (out / "log").open("w") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            job.wait(timeout=3 * seconds + 120)
        except subprocess.TimeoutExpired:
            _end(job)
    took = time.monotonic() - began
    verdict_file = out / "run" / "verdict.json"
    verdict = json.loads(verdict_file.read_text()).get("verdict", {}) if verdict_file.exists() else {}
    text = (out / "log").read_text(errors="replace")
    alarm = "SILE" in text or "COLL16" in text or "CONF161" in text or verdict.get("cause") not in (None, "", "healthy")
    found = {"kind": f"{file.partition('_')[0]}:{kind}", "every": every or "chosen", "steps": steps,
             "seconds": round(took, 1), "exit_code": job.returncode, "cause": verdict.get("cause"),
             "alarm": alarm}  # fmt: skip
    if alarm or job.returncode:
        found["log"] = text[-3000:]
        kept = Path(tempfile.gettempdir()) / f"guard-alarm-{kind}-{os.getpid()}-{int(time.time())}"
        shutil.copytree(out, kept, dirs_exist_ok=True)
        found["kept"] = str(kept)
    shutil.rmtree(out, ignore_errors=True)
    return found


def _end(job: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if job.poll() is None:
            os.killpg(job.pid, number)
            try:
                job.wait(timeout=MUST_STOP_S / 3)
            except subprocess.TimeoutExpired:
                continue


def main() -> int:
    minutes, lanes = float(sys.argv[1]), int((sys.argv[2:] or ["1"])[0])
    seconds, pace_s = float((sys.argv[3:] or ["300"])[0]), float((sys.argv[4:] or ["0.4"])[0])
    deadline, every_kind, first = time.monotonic() + 60 * minutes, kinds(), int((sys.argv[5:] or ["0"])[0])
    found: list[dict[str, Any]] = []
    turn, lock = iter(range(1 << 30)), threading.Lock()

    def lane() -> None:
        while True:
            with lock:
                if sum(bool(outcome["exit_code"]) for outcome in found) >= MOST_FAILED:
                    return
                number = next(turn)
            left = deadline - time.monotonic()
            if left < 60:
                return
            file, kind = every_kind[(first + number) % len(every_kind)]
            outcome = one_job(file, kind, min(seconds, left - 30), pace_s, "1" if (number // 2) % 2 else "")
            with lock:
                found.append(outcome)
                print(json.dumps(outcome), flush=True)  # noqa: T201

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alarms = sum(outcome["alarm"] for outcome in found)
    total = {"jobs": len(found), "kinds": len({o["kind"] for o in found}), "alarms": alarms,
             "hours": round(sum(o["seconds"] for o in found if not o["exit_code"]) / 3600, 3),
             "failed": [o["kind"] for o in found if o["exit_code"]]}  # fmt: skip
    print(json.dumps(total), flush=True)  # noqa: T201
    return min(99, alarms + len(total["failed"]))


if __name__ == "__main__":
    sys.exit(main())
