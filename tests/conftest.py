"""What all tests share: the command as a user runs it, and how hard hypothesis tries."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import together
from tests.command import run_forked

ROOT = Path(__file__).parent.parent

settings.register_profile("default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A defect of a rule ends a test; a user still gets the verdict of the others.
os.environ["WHICHRANK_DEBUG"] = "1"
# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Verdicts of test jobs are nobody's history.
os.environ["WHICHRANK_HISTORY"] = "off"

# What is collected stays to the end: to look for garbage in it again and again would take a tenth of the time.
gc.disable()

Command = Callable[..., subprocess.CompletedProcess[str]]


def command_environment() -> dict[str, str]:
    """The environment for a child that must find this checkout's package."""
    found = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return {**inherited, "PYTHONPATH": os.pathsep.join(found), "PYTHONWARNINGS": "ignore"}


@pytest.fixture
def whichrank() -> Command:
    """Run the command in a child that has its modules already: starting Python costs more than most commands."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return run_forked([str(a) for a in arguments], {**command_environment(), **environment}, stdin)

    return run


@pytest.fixture
def whichrank_process() -> Command:
    """Run the command as a user does, from the start of Python."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "whichrank", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=150,
            env={**command_environment(), **environment},
            check=False,
        )

    return run


@pytest.fixture
def example() -> Path:
    """The recorded hang that ships with the project."""
    return ROOT / "examples" / "skipped_collective"


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    together.a_test_begins(item)


# Most tests in these folders start processes, namespaces or jobs: `make check` leaves them out.
JOB_FOLDERS = {"run", "worker", "lab", "preflight", "rehearse", "integrations"}
# A busy machine may disturb a test that waits for real processes: it runs again and is listed. No other test does.
RERUNS, MOST_RERUNS = 2, 3


SECONDS = "whichrank/seconds"
"""What each file took, as pytest's cache remembers it."""
_took: Counter[str] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` need not load what it leaves out."""
    skips_jobs = config.option.markexpr.startswith("not job")
    return True if skips_jobs and collection_path.name in JOB_FOLDERS and collection_path.is_dir() else None


def pytest_collection_modifyitems(config, items):
    """Long files begin first: by what they took the last time, or as marked. Those of jobs, which mostly wait, and the
    others, which compute, take turns from the beginning to the end: together they keep the cores busy."""
    size = Counter(item.path for item in items)
    of_jobs = {path for path in size if JOB_FOLDERS & set(path.parts)}
    for item in items:
        if item.path in of_jobs:
            item.add_marker(pytest.mark.job)
        if item.get_closest_marker("job") and not item.get_closest_marker("bars"):  # a bar is met at once or missed
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))
    guess = Counter({path: 0.01 * count for path, count in size.items()})
    for name, seconds in (("slow", 20.0), ("job", 10.0)):
        for path, count in Counter(item.path for item in items if item.get_closest_marker(name)).items():
            guess[path] += seconds + min(count, 10)
    took = config.cache.get(SECONDS, {}) if hasattr(config, "cache") else {}
    seconds = {item.path: took.get(item.nodeid.partition("::")[0], guess[item.path]) for item in items}
    waits = {item.path for item in items if item.get_closest_marker("job")}
    begins = {**_turns(seconds, waits), **_turns(seconds, seconds.keys() - waits)}
    items.sort(key=lambda item: begins[item.path])


def _turns(seconds, paths):
    """When each file is due, as a share of the time of all of them; the longest is first."""
    total, due, before = math.fsum(seconds[path] for path in paths), {}, 0.0  # the same in every worker
    for path in sorted(paths, key=lambda path: (-seconds[path], path)):
        due[path] = (before / total if total else 0.0, path)
        before += seconds[path]
    return due


def pytest_runtest_logreport(report):
    _took[report.nodeid.partition("::")[0]] += report.duration


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Too many tests that ran again are a failure: something disturbs them that should be looked at."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput") and len(_took) > 50:
        cache.set(SECONDS, {**cache.get(SECONDS, {}), **{name: round(seconds, 1) for name, seconds in _took.items()}})
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    again = len(reporter.stats.get("rerun", ())) if reporter is not None else 0
    if again > MOST_RERUNS and exitstatus == 0:
        reporter.write_line(f"{again} tests ran again, {MOST_RERUNS} at most may", red=True)
        session.exitstatus = 1
