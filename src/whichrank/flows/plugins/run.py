"""The rules of plug-ins: run in a child, so that nothing they do can cost the verdict of the built-in ones."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import util
from pathlib import Path
from types import ModuleType

import msgspec
from msgspec.structs import replace

from whichrank.facts import messages, site
from whichrank.facts.taxonomy import causes
from whichrank.model.errors import FactsError
from whichrank.model.evidence import Ref, Skipped, Source
from whichrank.model.findings import (
    Alternative,
    Category,
    Finding,
    Grade,
    Kind,
    NextStep,
    NotEvaluated,
    Severity,
    Subject,
)
from whichrank.timeline.case import Case

LIMIT_S = 20.0
"""For all rules of all plug-ins together."""
_CODE = re.compile(r'^CODE\s*(?::[^=]*)?=\s*["\'](\w+)["\']', re.MULTILINE)
_LARGEST = 16 << 20
"""Bytes of what the rules say."""


class _Said(msgspec.Struct):
    """A finding, as the child tells it: types are checked when it comes in. msgspec can't decode `Finding` itself:
    its `certificate` is one of two kinds of tuples."""

    code: str
    cause: str
    category: Category
    severity: Severity
    grade: Grade
    subject: Subject
    message: str
    evidence: tuple[Ref, ...]
    fix: tuple[str, ...] = ()
    victims: tuple[int, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    next: tuple[NextStep, ...] = ()
    onset_ns: int | None = None
    kind: Kind = "messages"


class Answer(msgspec.Struct):
    """What one rule said."""

    code: str
    findings: list[_Said] = []
    missing: str = ""


def load(path: Path) -> ModuleType:
    """A rule's module. It is executed: a plug-in is code that its site trusts."""
    name = f"whichrank_plugin_{abs(hash(str(path.resolve())))}"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def code_of(path: Path) -> str:
    """The code that a rule's file states, without executing it; the file's name where it states none."""
    with suppress(OSError, UnicodeDecodeError, FactsError):
        if found := _CODE.search(site.bounded(path).read_text(encoding="utf-8")):
            return found[1]
    return path.stem


def judged(case: Case, taken: Sequence[str]) -> tuple[list[Finding], list[str], list[str], list[Skipped]]:
    """What the rules of all plug-ins say of a case: findings, codes that found, codes that are clear, codes skipped.

    `taken` are the codes of built-in rules: a plug-in can't speak in their name.
    """
    files = [path for plugin in site.plugins() for path in plugin.rules()]
    if not files:
        return [], [], [], []
    codes = [code_of(path) for path in files]
    answers, ended = _answers(case, files)
    findings: list[Finding] = []
    found, clear, skipped = [], [], []
    for place, code in enumerate(codes):
        answer = answers.get(place)
        if code in taken or code in codes[:place]:
            skipped.append(Skipped(code, f"a code of its own: {files[place].name} uses one that another rule has"))
        elif answer is None:
            skipped.append(Skipped(code, f"an answer of the plug-in {files[place].name}: {ended}"))
        elif answer.missing:
            skipped.append(Skipped(code, answer.missing))
        elif answer.findings:
            findings += [_finding(said) for said in answer.findings]
            found.append(code)
        else:
            clear.append(code)
    return findings, found, clear, skipped


def with_site_fixes(finding: Finding) -> Finding:
    """The finding with what this site does first about its cause."""
    first = site.fixes().get(finding.cause, ())
    return replace(finding, fix=(*first, *finding.fix)) if first else finding


def left_out() -> list[Source]:
    """What of the plug-ins is not in use, and why, as the coverage tells it."""
    problems = [*site.problems()]
    for plugin in site.plugins():
        for path in plugin.signatures():
            problems += _problem(path, partial(messages.read_signatures, path))
        for name, columns in (("causes.csv", site.CAUSE_COLUMNS), ("fixes.csv", site.FIX_COLUMNS)):
            path = plugin.folder / name
            if path.exists():
                problems += _problem(path, partial(site.table, path, columns))
    return [Source(str(problem.path), "plug-in", "unusable", problem.why) for problem in problems]


def _problem(path: Path, read: Callable[[], object]) -> list[site.Problem]:
    try:
        read()
    except FactsError as error:
        return [site.Problem(path, error.message)]
    return []


def ask(module: ModuleType, case: Case) -> list[Finding] | NotEvaluated:
    """A rule's answer, if it is one."""
    answer = module.judge(case)
    if isinstance(answer, NotEvaluated):
        return answer
    if not isinstance(answer, list) or not all(isinstance(finding, Finding) for finding in answer):
        raise TypeError("judge must return a list of Finding, or NotEvaluated")
    for finding in answer:
        if finding.code != module.CODE:
            raise ValueError(f"a finding has the code {finding.code}, the rule {module.CODE}")
        if finding.cause not in causes():
            raise ValueError(f"the cause {finding.cause} is neither in the taxonomy nor in causes.csv")
    return answer


def _finding(said: _Said) -> Finding:
    return Finding(**{name: getattr(said, name) for name in Finding.__struct_fields__ if name != "certificate"})


# -- in the child


def _tell(case: Case, files: Sequence[Path], pipe: int) -> None:
    """One line per rule, as soon as it has answered."""
    with os.fdopen(pipe, "wb") as stream:
        for place, path in enumerate(files):
            stream.write(msgspec.json.encode([place, _answer(case, path)]) + b"\n")
            stream.flush()


def _answer(case: Case, path: Path) -> Answer:
    code = code_of(path)
    try:
        answer = ask(load(path), case)
        if isinstance(answer, NotEvaluated):
            return Answer(code, missing=str(answer.missing) or "evidence")
        told = [_Said(**{f: getattr(finding, f) for f in _Said.__struct_fields__}) for finding in answer]
        return msgspec.json.decode(msgspec.json.encode(Answer(code, told)), type=Answer)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too: whatever a plug-in raises is its own defect
        return Answer(code, missing=f"a working rule: {path.name} failed ({type(error).__name__}: {error})"[:300])


def alone(case: Case, path: Path) -> Answer | None:
    """What one rule says of a case; None where it does not answer."""
    return _answers(case, [path])[0].get(0)


def within(work: Callable[[], None], limit_s: float) -> bool:
    """Whether some work ends well within its time, in a child."""

    def tell(pipe: int) -> None:
        work()
        os.write(pipe, b"done")

    return _from_a_child(tell, limit_s)[0] == b"done"


def _answers(case: Case, files: Sequence[Path]) -> tuple[dict[int, Answer], str]:
    """The answers by the place of the rule's file, and why there are no more."""
    said, ended = _from_a_child(lambda pipe: _tell(case, files, pipe), LIMIT_S)
    found: dict[int, Answer] = {}
    for line in said.split(b"\n")[:-1]:
        with suppress(msgspec.MsgspecError):
            place, answer = msgspec.json.decode(line, type=tuple[int, Answer])
            found[place] = answer
    return found, ended


def _from_a_child(tell: Callable[[int], None], limit_s: float) -> tuple[bytes, str]:
    """All that a child writes to its pipe within its time, and why there is no more; the child is gone afterwards."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(tell, inward, outward)
    os.close(outward)
    try:
        return _heard(inward, limit_s)
    finally:
        os.close(inward)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _be_the_child(tell: Callable[[int], None], inward: int, outward: int) -> None:
    """Never returns: what the parent has to clean up is not the child's."""
    code = 1
    try:
        os.close(inward)
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(quiet, number)
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        tell(outward)
        code = 0
    finally:
        os._exit(code)


def _heard(pipe: int, limit_s: float) -> tuple[bytes, str]:
    """All that the child says within its time."""
    end, parts, size = time.monotonic() + limit_s, list[bytes](), 0
    while (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts), "it, or one before it, ended the process"
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            return b"".join(parts), f"plug-ins said more than {_LARGEST >> 20} MiB"
    return b"".join(parts), f"it, or one before it, took longer than {limit_s:.0f} s"
