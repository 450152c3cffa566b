"""Debugging and isolation settings in a production job.

What it finds, with --for production, or in files that say so themselves (values-prod.yaml, train.py --production, a
Kubernetes namespace or label, APP_ENV=production, a partition or queue named prod, "production" in the description of a
unit or in the comment at the top): verbose logs, checks of every call, synchronous launches, transports switched off
for a test, forced algorithms. In every other launch file: the settings that cost a large part of each step
(CUDA_LAUNCH_BLOCKING=1, TORCH_DISTRIBUTED_DEBUG=DETAIL, NCCL_DEBUG=TRACE), unless the file is for debugging or tests
by its name, its comments or the block that they stand in. What somebody has to ask for is not left on: a branch that is
not taken by default, a preset, a service with a profile, a check before the job. NCCL_DEBUG=INFO with a file for the
logs (NCCL_DEBUG_FILE) is not either. One process alone may switch transports off.

Why it happens: they helped once and stayed.

How it decides: by what each setting costs. Those that slow every step are warnings; those that are only
noise, or that may be meant, are mentioned.

Example: `CUDA_LAUNCH_BLOCKING=1` → remove it.

Fix: remove it, or take the settings of `whichrank env --for production`.

Limits: a transport may be off for a good reason on this fabric.
"""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.facts.variables.environment import catalogue
from whichrank.facts.variables.values import TRUE, is_true, number
from whichrank.model.findings import Finding, NotEvaluated, Severity
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV112"
CAUSE = "wrong-environment"

_ON = {
    "CUDA_LAUNCH_BLOCKING": "makes every kernel launch wait for its end",
    "TORCH_NCCL_BLOCKING_WAIT": "makes collectives synchronous",
    "TORCH_NCCL_DESYNC_DEBUG": "writes to the store at every collective",
    "TORCH_NCCL_NAN_CHECK": "reads every input before each collective",
    "TORCH_DIST_NAN_CHECK": "reads every input before each collective",
    "TORCH_FR_CPP_STACK": "captures C++ frames at every collective",
    "TORCH_NCCL_TRACE_CPP_STACK": "captures C++ frames at every collective",
    "NCCL_CHECK_POINTERS": "checks the pointers of every call",
    "NCCL_P2P_DISABLE": "switches direct GPU-to-GPU traffic off",
    "NCCL_SHM_DISABLE": "switches shared memory off",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "allocates from the driver every time",
}
# Name, values, what they do, how much that matters; no values means any.
_VALUES: tuple[tuple[str, frozenset[str], str, Severity], ...] = (
    ("NCCL_DEBUG", frozenset({"INFO", "TRACE", "ABORT"}), "logs more than errors; WARN is enough", "warning"),
    ("TORCH_DISTRIBUTED_DEBUG", frozenset({"DETAIL"}), "checks every collective before it runs", "warning"),
    ("TORCH_DISTRIBUTED_DEBUG", frozenset({"INFO"}), "collects statistics of DDP", "info"),
    ("NCCL_CHECK_MODE", frozenset({"DEBUG_LOCAL", "DEBUG_GLOBAL"}), "checks every call", "warning"),
    ("NCCL_NVLS_ENABLE", frozenset({"0"}), "switches NVLink SHARP off", "info"),
    ("NCCL_IB_DISABLE", frozenset({"1"}), "switches InfiniBand and RoCE off", "info"),
    ("TORCH_CPP_LOG_LEVEL", frozenset({"INFO", "0"}), "logs more than warnings", "info"),
    ("TORCH_SHOW_CPP_STACKTRACES", frozenset({"1"}), "is for debugging", "info"),
    ("NCCL_ALGO", frozenset(), "takes the choice per size away from NCCL", "info"),
    ("NCCL_PROTO", frozenset(), "takes the choice per size away from NCCL", "info"),
)
_TRANSPORTS = frozenset({"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"})
_LIVE = frozenset({"environment", "nccl.conf"})
"""Kinds of input that are no launch files: nothing says what they are for."""
_LOUD = frozenset({"COLL", "ALL", "PROXY", "CALL", "P2P", "NET"})


# Whatever the job is: nobody wants these all the time.
_COSTLY = {"CUDA_LAUNCH_BLOCKING": TRUE, "TORCH_DISTRIBUTED_DEBUG": {"detail"}, "NCCL_DEBUG": {"trace"}}


def judge(settings: Settings) -> list[Finding] | NotEvaluated:
    if settings.purpose == "production":
        return [finding for a in settings.assignments() if a.value for finding in _judge(a, "in production")]
    marked = {scope for file in settings.files for scope in file.production}
    unsaid = NotEvaluated("that the job is a production job (--for production)")
    if settings.purpose:
        return unsaid
    trials = {file.label for file in settings.files if file.trial or file.kind in _LIVE}
    lines = {(file.label, line) for file in settings.files for line in file.trial_lines}
    tests = {scope for file in settings.files for scope in file.trial_scopes}
    alone = {(a.scope, a.way) for a in settings.assignments() if a.name == "WORLD_SIZE" and a.value == "1"}
    kept = {a.scope for a in settings.assignments() if a.name == "NCCL_DEBUG_FILE"}
    found: list[Finding] = []
    for a in settings.assignments():
        if a.asked or a.how == "local" or a.scope in tests or (a.ref.source, a.ref.line) in lines:
            continue
        if a.name in _TRANSPORTS and (a.scope, a.way) in alone:
            continue
        if a.name == "NCCL_DEBUG" and (a.value or "").upper() == "INFO" and a.scope in kept:
            continue  # somebody wants to read them
        if a.value and {a.scope, a.ref.source} & marked:
            found += [finding for finding in _judge(a, "in production") if finding.severity != "info"]
        elif a.sure and a.ref.source not in trials and (a.value or "").lower() in _COSTLY.get(a.name, ()):
            found += _judge(a, "left on")
    return found if found or marked else unsaid


def _judge(assignment: Assignment, where: str) -> Iterator[Finding]:
    name, value = assignment.name, (assignment.value or "").upper()
    on = is_true(value) or (number(value) or 0) > 0
    if name in _ON and on:
        yield _left_on(assignment, where, "warning", _ON[name])
    for known, values, why, severity in _VALUES:
        if name == known and (not values or value in values):
            yield _left_on(assignment, where, severity, why)
    if name == "NCCL_DEBUG_SUBSYS" and not value.startswith("^") and _LOUD & set(value.split(",")):
        yield _left_on(assignment, where, "warning", "logs every operation")
    variable = catalogue().get(name)
    if on and variable and variable.caution.startswith("debug only") and name != "NCCL_CHECK_MODE":
        yield _left_on(assignment, where, "info", variable.meaning[:1].lower() + variable.meaning[1:])


def _left_on(assignment: Assignment, where: str, severity: Severity, why: str) -> Finding:
    message = f"{assignment.name}={assignment.value} {where}: {why}."
    return flagged(CODE, assignment, severity, message, f"Remove {assignment.name}.")
