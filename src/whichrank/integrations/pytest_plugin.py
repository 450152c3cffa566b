"""`pytest --whichrank`: a test whose ranks hang ends with the verdict instead of running into the CI's limit.

Ranks that a test starts (torchrun, torch.multiprocessing, subprocess) are watched as `whichrank run` watches a job.
Nothing is loaded and nothing changes without the option.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from whichrank.run.watch.watcher import Watcher

SECTION = "whichrank"
_TOLD = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("whichrank", "whichrank: tests that start ranks")
    group.addoption(
        "--whichrank", action="store_true", help="Watch the ranks that tests start; end a hang with its verdict."
    )
    group.addoption("--whichrank-out", metavar="DIR", help="Keep evidence and verdicts here (default: a fresh folder).")
    group.addoption("--whichrank-report-only", action="store_true", help="Print the verdict, but end nothing.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch while the test itself runs; not its fixtures, which may start services that wait by design."""
    if not item.config.getoption("--whichrank"):
        return (yield)
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """The verdict stands in the test's report; a test that hung has not passed, whatever it made of its ranks' end."""
    report = yield
    told = item.stash.get(_TOLD, None)
    if told is not None and call.when == "call":
        report.sections.append((SECTION, told))
        if report.passed:
            report.outcome, report.longrepr = "failed", told
    return report


@contextmanager
def _watched(item: pytest.Item) -> Generator[None, None, None]:
    from whichrank.run.watch import private
    from whichrank.run.watch.job_files import torch_places
    from whichrank.run.watch.job_processes import JobProcesses
    from whichrank.run.watch.launch import settings

    out = _place(item)
    (out / "torch").mkdir(parents=True, exist_ok=True)
    folder = private.make()
    before = dict(os.environ)
    os.environ.update(settings("production", out / "torch", before))
    os.environ.update(private.variables(folder, before))
    watcher = _watcher(item, JobProcesses(folder), out)
    watcher.record.places = torch_places(os.environ)
    thread = threading.Thread(target=watcher.run, name="whichrank", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watcher.stop()
        thread.join(60.0)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
        with suppress(OSError):
            watcher.record.job_processes.close()
        private.remove(folder)
        _tidy(out, item)


def _watcher(item: pytest.Item, job_processes: Any, out: Path) -> Watcher:
    from whichrank.run.watch.run_record import RunRecord
    from whichrank.run.watch.watcher import Watcher

    ends = not item.config.getoption("--whichrank-report-only")

    def tell_pytest() -> None:
        told = _verdict(watcher)
        item.stash[_TOLD] = told
        _print(item, told)
        if ends:
            _end([(m.words.pid, m.words.start_ticks) for m in watcher.record.job_processes.ranks() if m.alive])

    record = RunRecord(job_processes, out, lambda _line: None, job_pid=os.getpid())
    watcher = Watcher(record, confirmed=tell_pytest)
    return watcher


def _verdict(watcher: Watcher) -> str:
    """The report, and where the evidence is."""
    if watcher.record.diagnosis is None:
        return f"The test hangs ({watcher.record.alarm.why}). The evidence is in {watcher.record.out}.\n"
    from whichrank.report import text

    told = "".join(text.render(watcher.record.diagnosis))
    return f"{told}\nAs a page: whichrank diagnose {watcher.record.out / 'bundle'} --output report.html\n"


def _print(item: pytest.Item, told: str) -> None:
    """At once, since the test may go on hanging; a worker of xdist has no terminal, and its report tells it."""
    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.section(f"whichrank: {item.nodeid} hangs", red=True)
        reporter.write(told)


def _end(meant: list[tuple[int, int]]) -> None:
    """End the ranks, first politely; their launcher then tells the test."""
    from whichrank.evidence.collectors import processes
    from whichrank.run.watch.session import end_processes

    for pid, start in meant:
        if processes.same(pid, start):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    end_processes(meant)


def _place(item: pytest.Item) -> Path:
    """A folder for this test's evidence."""
    import re
    import tempfile

    root = item.config.getoption("--whichrank-out")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", item.nodeid)[-80:]
    if root is None:
        return Path(tempfile.mkdtemp(prefix="whichrank-pytest-"))
    Path(root).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=root))


def _tidy(out: Path, item: pytest.Item) -> None:
    """Evidence of a test that did not hang is of no interest."""
    if _TOLD not in item.stash:
        import shutil

        shutil.rmtree(out, ignore_errors=True)
