"""How fast is communication, and how fast should it be: run collectives, judge, compare, keep."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.facts.hardware.bandwidth import COLLECTIVES, expected
from whichrank.fleet.engines import Engine
from whichrank.flows.bench import job
from whichrank.flows.bench.job import Limits
from whichrank.flows.discovery import rules_below
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.model.evidence import Coverage, Quality, Skipped, Source
from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.bench import BenchResult, BenchRun

_PROGRAM = ("-m", "whichrank.worker.bench.rank")
_RANKS = ("-m", "whichrank.worker.ranks")
_ORDER = {"error": 0, "warning": 1, "info": 2}


class Plan(Struct, frozen=True):
    """What to run."""

    collectives: Sequence[str] = COLLECTIVES
    sizes: Sequence[int] = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
    backend: str = "auto"
    dtype: str = "float32"
    seconds: float = 0.5
    """For each size."""
    ranks_per_host: int = 2
    stragglers: bool = False
    settings: Mapping[str, str] | None = None
    """Put into the environment of the ranks."""
    limits: Limits = field(default_factory=Limits)

    def words(self) -> str:
        return json.dumps(
            {"collectives": list(self.collectives), "sizes": list(self.sizes), "backend": self.backend,
             "dtype": self.dtype, "seconds": self.seconds, "stragglers": self.stragglers,
             "timeout_s": self.limits.collective_s}
        )  # fmt: skip


class Bench(Struct, frozen=True):
    """What was measured and found."""

    run: BenchRun
    findings: Sequence[Finding]
    coverage: Coverage

    @property
    def wrong(self) -> bool:
        return any(finding.severity != "info" for finding in self.findings)


def bench(run: BenchRun) -> Bench:
    """Put what is known of such machines beside the results, and judge."""
    run = replace(run, results=[_with_expectation(run, result) for result in run.results])
    findings: list[Finding] = []
    found: list[str] = []
    clear: list[str] = []
    skipped: list[Skipped] = []
    for rule in rules_below("benchmark"):
        answer = rule.judge(run)
        if isinstance(answer, NotEvaluated):
            skipped.append(Skipped(rule.CODE, answer.missing))
        else:
            findings += answer
            (found if answer else clear).append(rule.CODE)
    findings.sort(key=lambda f: (_ORDER[f.severity], f.code))
    quality: Quality = "partial" if run.failures or run.stopped else "complete"
    note = "; ".join([*(f"{name}: {why}" for name, why in run.failures.items()), *filter(None, [run.stopped])])
    coverage = Coverage((Source(run.origin, "bench", quality, note),), tuple(found), tuple(clear), tuple(skipped))
    return Bench(run, findings, coverage)


def _with_expectation(run: BenchRun, result: BenchResult) -> BenchResult:
    known = expected(run.device, run.nodes, result.ranks, result.collective, result.bytes)
    return replace(result, expected_gbs=round(known.busbw, 2), source=known.source) if known else result


# -- running


def measure(
    engine: Engine, plan: Plan, python: str, tell: Callable[[BenchResult], None] | None = None, hosts: int | None = None
) -> BenchRun:
    """Start the ranks on the hosts, and read what the first one prints."""
    names = list(engine.hosts[:hosts] if hosts else engine.hosts)
    counts = [engine.slots.get(name, plan.ranks_per_host) for name in names]
    world = sum(counts)
    if world < 2:
        raise UsageError("a collective needs at least two ranks", "Give --nproc-per-node 2, or more hosts.")
    local = engine.name == "local"
    settings = [f"{name}={value}" for name, value in (plan.settings or {}).items()]
    for last in (False, False, True):
        address, port = ("127.0.0.1", _free_port()) if local else (engine.address(names[0]), _some_port())
        commands: dict[str, list[str]] = {}
        for number, name in enumerate(names):
            words = [str(sum(counts[:number])), str(counts[number]), str(world), address, str(port)]
            command = [python, *_RANKS, *words, "--", python, *_PROGRAM, plan.words()]
            commands[name] = engine.wrap(name, ["env", *settings, *command] if settings else command)
        with job.started(commands) as running:
            told = job.listen(running, plan.limits, _teller(tell))
        if last or told.measured or "address already in use" not in told.stopped.lower():
            break
    return _measured(told)


def in_place(
    plan: Plan, python: str = sys.executable, tell: Callable[[BenchResult], None] | None = None
) -> BenchRun | None:
    """This process is one of N copies that a launcher started: run one rank; only rank 0 has results."""
    rank = os.environ.get("RANK", "0")
    with job.started({f"rank {rank}": [python, *_PROGRAM, plan.words()]}) as running:
        told = job.listen(running, plan.limits if rank == "0" else replace(plan.limits, start_s=plan.limits.whole_s),
                          _teller(tell))  # fmt: skip
    return _measured(told) if rank == "0" or told.stopped else None


def _teller(tell: Callable[[BenchResult], None] | None) -> Callable[[job.Line], None]:
    def each(line: job.Line) -> None:
        if tell is not None and "time_us" in line:
            tell(result_of(line))

    return each


def _measured(told: job.Told) -> BenchRun:
    """What there is; a run that was stopped says so, and one without any result is an error."""
    if not told.measured and not any("error" in line for line in told.lines):
        short = told.stopped.startswith("stopped after")
        hint = "Give it more time: --limit SECONDS" if short else "whichrank preflight may say why."
        raise UnreadableError(told.stopped or "the ranks gave no result", hint)
    return replace(run_of(told.lines), stopped=told.stopped)


def run_of(lines: Sequence[Mapping[str, Any]]) -> BenchRun:
    """The run that a worker told line by line."""
    about: Mapping[str, Any] = next((line["about"] for line in lines if "about" in line), {})
    return BenchRun(
        [result_of(line) for line in lines if "time_us" in line],
        str(about.get("backend", "")), str(about.get("device", "")), tuple(about.get("hosts", ())), about.get("torch"),
        about.get("nccl"), about.get("settings", {}),
        {str(line["collective"]): str(line["error"]) for line in lines if "error" in line},
        next((line["stragglers"] for line in lines if "stragglers" in line), {}),
    )  # fmt: skip


def result_of(line: Mapping[str, Any]) -> BenchResult:
    names = BenchResult.__struct_fields__
    return BenchResult(**{key: value for key, value in line.items() if key in names})


def scaling(engine: Engine, plan: Plan, python: str, tell: Callable[[BenchResult], None] | None = None) -> BenchRun:
    """The same with 2, 4, 8 … ranks, up to all."""
    total = sum(engine.slots.get(host, plan.ranks_per_host) for host in engine.hosts)
    runs: list[BenchRun] = []
    ranks = 2
    while True:
        per_host = min(plan.ranks_per_host, ranks)
        hosts = max(1, -(-ranks // per_host))
        runs.append(measure(replace(engine, slots={}), replace(plan, ranks_per_host=per_host), python, tell, hosts))
        if ranks >= total:
            break
        ranks = min(ranks * 2, total)
    return replace(runs[-1], results=[result for run in runs for result in run.results])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _some_port() -> int:
    """On another host: below the ports that kernels hand out by themselves."""
    return random.randrange(20_000, 32_000)  # noqa: S311 - not a secret


# -- keeping and comparing


def load(path: Path) -> list[BenchResult]:
    """Results of an earlier run, as `--save` and `--format json` wrote them."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [result_of(line) for line in document["results"]]
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path} holds no results of whichrank bench: {error}") from error


def sizes(text: str) -> list[int]:
    """`1K:64M:4` (from, to, factor) or `1M,16M`."""
    try:
        if ":" in text:
            first, last, factor = (*text.split(":"), "2")[:3]
            low, high, step = octets(first), octets(last), int(factor)
            if step < 2 or low < 1 or high < low:
                raise ValueError(text)
            found = []
            while low <= high:
                found.append(low)
                low *= step
            return found
        return [octets(word) for word in text.split(",")]
    except ValueError as error:
        raise UsageError(f"'{text}' gives no sizes", "Write 1K:64M:4 (from:to:factor) or 1M,16M.") from error


def octets(word: str) -> int:
    """`64M` as nccl-tests reads it: powers of 1024."""
    word = word.strip().upper().removesuffix("B").removesuffix("I")
    unit = {"K": 10, "M": 20, "G": 30}.get(word[-1:], 0)
    return int(float(word[:-1] if unit else word) * (1 << unit))
