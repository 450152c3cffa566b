"""One drill: a real job under `whichrank run`, broken on purpose, and what the verdict made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from whichrank.lab import place
from whichrank.lab.catalogue import Fault
from whichrank.lab.job import Job, JobEndedError
from whichrank.lab.setup import Setup, prepare
from whichrank.lab.truth import Answer, Mark, Truth, mark, of_verdict
from whichrank.lab.workloads import plan as plans
from whichrank.lab.workloads.plan import Plan
from whichrank.model.errors import UsageError

Tell = Callable[[str], None]
Launcher = Literal["torchrun", "fork"]
STEPS_TO_SHOW = 25
"""How many steps of a fault that goes on are needed before it is looked at."""
END_S = 20.0


@dataclass(slots=True)
class Outcome:
    """What came of a drill."""

    fault: Fault
    plan: Plan
    truth: Truth
    diagnosis: dict[str, Any] | None
    """As `diagnose --format json` has it; None where nothing was said."""
    exit_code: int | None
    alarm_s: float | None = None
    verdict_s: float | None = None
    """Seconds from the fault to the first alarm and to the verdict."""
    notes: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def answer(self) -> Answer:
        if self.diagnosis is None:
            return Answer("healthy", (), "nothing was found to be wrong")
        return of_verdict(self.diagnosis["verdict"])

    @property
    def mark(self) -> Mark:
        return mark(self.truth, self.answer)


def drill(
    fault: Fault, seed: int, world: int, *, backend: str = "gloo", launcher: Launcher | None = None, tell: Tell
) -> Outcome:
    """Run one drill to its end; its files stay in `outcome.folder`, for the caller to `place.tidy`."""
    if world < fault.least_world:
        raise UsageError(f"{fault.name} needs {fault.least_world} ranks or more", "Give --ranks a larger number.")
    if backend not in fault.backends:
        raise UsageError(f"{fault.name} can't be made with {backend}", f"Try --backend {fault.backends[0]}.")
    folder = place.make()
    try:
        setup = prepare(folder, fault, plans.make(fault.name, seed, world, backend), launcher)
        outcome = Outcome(fault, setup.plan, fault.truth(setup.plan), None, None, folder=folder)
        job = start(setup, policy="report" if fault.ending == "running" else "end", guard=fault.guard)
        tell(f"{fault.name}: {world} ranks, seed {seed}")
        _break_it(fault, job, outcome)
        outcome.exit_code = _await_end(job, setup.limit_s)
        _inject(fault, job, outcome)
        outcome.diagnosis = _read(job.out / "verdict.json")
        _time(job, outcome)
    except BaseException:
        place.tidy(folder)
        raise
    place.tidy(folder, keep=True)
    return outcome


def start(setup: Setup, policy: str, *, guard: bool = False) -> Job:
    """`whichrank run`, as a user would type it."""
    command = [sys.executable, "-c", "from whichrank.cli.main import main; main()"]
    command += [
        "run",
        "--out",
        str(setup.folder / "out"),
        "--policy",
        policy,
        *(["--guard"] if guard else []),
        "--",
        *setup.command(),
    ]
    # Steps of a drill take no time to speak of: left alone, the guard would look at few of them.
    variables = {**setup.variables(), **({"WHICHRANK_GUARD_EVERY": "1"} if guard else {})}
    with (setup.folder / "output.log").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            cwd=setup.folder / "code", start_new_session=True,
        )  # fmt: skip
    return Job(setup, process)


def _break_it(fault: Fault, job: Job, outcome: Outcome) -> None:
    """What a fault does from outside, and the look at a job that goes on."""
    try:
        outside = fault.hook("outside")
        if outside is not None:
            outside(job)
        if fault.ending == "running":
            for rank in range(job.plan.world):
                job.await_step(rank, job.plan.step + STEPS_TO_SHOW)
            _look(job)
    except (JobEndedError, ProcessLookupError) as error:
        outcome.notes.append(str(error))


def _look(job: Job) -> None:
    """Take the evidence of a job that runs, and judge it."""
    from whichrank.run.watch.collect import collect

    collect(job.pid(0), job.out / "bundle")
    # What a person would look at beside: the job prints into the drill's own file.
    (job.out / "bundle" / "output.log").write_bytes((job.folder / "output.log").read_bytes())
    _judge(job)
    job.process.terminate()


def _inject(fault: Fault, job: Job, outcome: Outcome) -> None:
    """Lay recorded evidence beside what was captured, and judge again."""
    evidence = fault.hook("evidence")
    if evidence is None:
        return
    for name, content in evidence(job).items():
        path = job.out / "bundle" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    outcome.notes.append("hardware evidence is injected")
    _judge(job)


def _judge(job: Job) -> None:
    """The verdict on the bundle as it is now, in the place of an earlier one."""
    from whichrank.flows.diagnose.pipeline import diagnose
    from whichrank.report import load

    diagnosis = diagnose([job.out / "bundle"], jobs=1)
    (job.out / "verdict.json").write_text("".join(load("json").render(diagnosis)), encoding="utf-8")


def _await_end(job: Job, limit_s: float) -> int | None:
    """The exit code of the job; None where it had to be ended."""
    try:
        return job.process.wait(limit_s)
    except subprocess.TimeoutExpired:
        pass
    job.process.terminate()
    try:
        job.process.wait(END_S)
    except subprocess.TimeoutExpired:
        job.process.kill()
    return None


def _time(job: Job, outcome: Outcome) -> None:
    """From the fault to the alarm and to the verdict, by the clocks of this host."""
    try:
        struck = float((job.folder / "struck").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    alarms = (_read(job.out / "run.json") or {}).get("alarms") or []
    times = [_seconds(alarm.get("time")) for alarm in alarms]
    told = [_seconds(alarm["verdict"]) for alarm in alarms if alarm.get("verdict")]
    after = [moment - struck for moment in times if moment is not None and moment >= struck - 1]
    outcome.alarm_s = round(max(0.0, min(after)), 1) if after else None
    verdicts = [moment - struck for moment in told if moment is not None]
    if not verdicts and (job.out / "verdict.json").exists():
        verdicts = [(job.out / "verdict.json").stat().st_mtime - struck]
    outcome.verdict_s = round(max(0.0, min(verdicts)), 1) if verdicts else None


def _seconds(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
