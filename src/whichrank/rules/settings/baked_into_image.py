"""Settings that an image or a host carries where nobody looks.

What it finds: nccl.conf files that a Dockerfile copies, /etc/nccl.conf and ~/.nccl.conf of this host, variables of an
image (or of an nccl.conf that its Dockerfile spells out) that point at files or devices of one kind of host.

Why it happens: the file is read by every job that runs from the image, silently, on any host.

How it decides: by the path. NCCL reads NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf; the real
environment wins over both.

Example: `COPY nccl.conf /etc/nccl.conf`.

Fix: set variables where the job is launched.

Limits: base images are not opened.
"""

from __future__ import annotations

from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Baked, Settings, flagged

CODE = "ENV115"
CAUSE = "wrong-environment"

_FILES = frozenset({"NCCL_CONF_FILE", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_FILE"})
_DEVICES = frozenset({"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME"})


def judge(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    for file in settings.files:
        found += [_baked(baked, file.kind) for baked in file.baked]
        image = {"image", "conf"} if file.kind == "dockerfile" else {"image"}
        found += [finding for a in file.assignments if a.how in image for finding in _carried(a)]
    return found


def _baked(baked: Baked, kind: str) -> Finding:
    message = f"{baked.path} applies to every job here, silently, below the job's own environment."
    if kind == "dockerfile":
        message = f"The image carries {baked.path}: every job that runs from it reads it, silently, on any host."
    holder = Assignment(baked.path, None, baked.ref, "", "conf")
    fix = "Set the variables where the job is launched."
    return flagged(CODE, holder, "warning" if kind == "dockerfile" else "info", message, fix)


def _carried(assignment: Assignment) -> list[Finding]:
    if assignment.name in _FILES:
        message = f"The image sets {assignment.name}={assignment.value}: a file of one kind of host."
    elif assignment.name in _DEVICES and assignment.value and not assignment.value.startswith("^"):
        message = f"The image sets {assignment.name}={assignment.value}: device names differ between hosts."
    else:
        return []
    return [flagged(CODE, assignment, "info", message, f"Set {assignment.name} where the job is launched.")]
