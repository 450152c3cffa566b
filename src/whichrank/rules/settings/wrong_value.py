"""A value that is read otherwise than it was meant.

What it finds: words where NCCL reads numbers (`NCCL_IB_DISABLE=true` is 0), sizes with units (`4M` is 4),
octal numbers, numbers out of range, levels in the wrong case (`NCCL_P2P_LEVEL=nvl` is ignored), unknown
subsystems, algorithms and protocols, typographic quotes, MASTER_ADDR with a port or a scheme, seconds where
milliseconds or minutes are read and the other way round; a partition key where its place in the table is read; "~"
and "$NAME" that stay text, because they stand in quotes or because the format expands nothing; forms of a value that
the NCCL at hand does not read yet (`NCCL_ALGO=allreduce:tree` before 2.24).

Why it happens: NCCL reads numbers with strtoll and says nothing about what is left over.

How it decides: by how the source of each library parses the variable.

Example: `export NCCL_IB_DISABLE=true` → NCCL reads 0 and uses InfiniBand.

Fix: the value in the form that is read.

Limits: values that only a running shell knows are not judged; of a template its default is. Numbers of channels are
not judged in files for GPUs of AMD: RCCL has other limits.
"""

from __future__ import annotations

import re

from whichrank.facts.variables.environment import catalogue, in_family, others
from whichrank.facts.variables.values import problem
from whichrank.model.findings import Finding
from whichrank.records.settings import UNKNOWN, Assignment, Settings, flagged

CODE = "ENV105"
CAUSE = "wrong-environment"

# NCCL has 64 channels at most; RCCL has 128 (MAXCHANNELS in src/include/device.h), and 112 is advised for MI300X.
_CHANNELS = frozenset({"NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"})


def judge(settings: Settings) -> list[Finding]:
    found = []
    rocm = {file.label for file in settings.files if file.rocm}
    for assignment in settings.assignments():
        if copied := _copied(assignment):
            found.append(flagged(CODE, assignment, "warning", f"{assignment.name}: {copied[0]}.", copied[1]))
            continue
        variable = catalogue().get(assignment.name) or others().get(assignment.name)
        if variable is None or assignment.value is None:
            continue
        if assignment.name in _CHANNELS and assignment.ref.source in rocm:
            continue
        wrong = problem(variable, assignment.value, settings.versions(assignment)[1])
        if wrong is not None and not wrong.fatal:
            message = f"{variable.name}={assignment.value}: {wrong.message}."
            fix = f"Values that are read: {variable.allowed}." if variable.allowed else "Give a value that is read."
            found.append(flagged(CODE, assignment, "warning", message, fix))
    return found


_CURLY = re.compile("[\u2018\u2019\u201c\u201d]")


def _copied(assignment: Assignment) -> tuple[str, str] | None:
    """What is wrong with a text whatever the variable's own values are, and the fix."""
    text = assignment.value or assignment.partial
    if (in_family(assignment.name) or assignment.name in catalogue()) and _CURLY.search(text):
        return f"the typographic quotes are part of the value {text}", "Write plain quotes."
    if (as_text := _left_as_text(assignment)) and assignment.name in catalogue():
        return as_text
    if assignment.name == "MASTER_ADDR" and re.fullmatch(r"(?:\w+://)?[^:/\s]+:\d{2,5}", text):
        return "it takes the host alone, without a port", "Put the port into MASTER_PORT."
    if assignment.name == "MASTER_ADDR" and re.match(r"\w{2,10}://", text):
        return "it takes the host alone, without a scheme", "Write the name or address of the host."
    return None


_REFERENCE = re.compile(r"\$(?:\{\w{1,80}[}:]|[A-Za-z_]\w{0,80})")
_HAS_PLACES = frozenset({"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"})
"""Variables whose own values have ${…} in them, for the library that reads them."""


def _left_as_text(assignment: Assignment) -> tuple[str, str] | None:
    """`~` and `$NAME` in a value as it arrives: the libraries expand neither. Readers of formats that do expand them
    leave what they can't know as unknown."""
    text = assignment.value or assignment.partial
    if assignment.used or assignment.how in {"local", "build"} or assignment.name in _HAS_PLACES:
        return None  # the script may put it into something that a shell reads
    if re.match(r"~[\w.-]{0,40}/", text):
        return f"'~' is not expanded here and stays a part of the value {text}".replace(UNKNOWN, "…"), _WHOLE_PATH
    found = _REFERENCE.search(assignment.value or "")
    if found is not None:
        return f"{found.group()} stays text: nothing expands it here", "Use double quotes, or write the value itself."
    return None


_WHOLE_PATH = "Write the whole path, or $HOME where a shell reads it."
