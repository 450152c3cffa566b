"""A file system of a host is full.

## What it finds
File systems without space or without inodes in the output of df, where the job failed.

## Why it happens
Checkpoints pile up, a cache or a temporary folder lies on a small disk, millions of small files use up the inodes.

## How it decides
By df: nothing free and 100 % used. Images mounted read-only (snap, squashfs, ISO) are always full and are left out, and
so is shared memory, which has a cause of its own. Where the job did not fail it is only a remark.

## Example
`/dev/nvme0n1p1  894G  894G  0  100% /scratch`

## Limits
df tells the state when it was run, not when the job failed.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.host import FileSystem
from whichrank.rules import building, hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import same_host
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import kernel_events, statements

CODE = "HOST153"
CAUSE = "disk-full"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
)
_ALWAYS_FULL = ("/dev/loop", "/dev/sr", "squashfs", "efivarfs", "shm", "tmpfs", "udev", "overlay-ro")
_NOT_WRITTEN = ("/snap", "/sys", "/proc", "/boot/efi", "/dev", "/run", "/media", "/cdrom")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.hosts if s.file_systems]
    if not states:
        return NotEvaluated("df -h and df -i of the hosts")
    full = [(s, row) for s in states for row in s.file_systems if _is_full(row)]
    if not full:
        return []
    said = statements.said(case, "No space left on device", "Disk quota exceeded", "[Errno 28]")
    told = [*said, *statements.beside(said, statements.known(case, CAUSE))]
    hosts = {short_name(sign.host) for sign in told if sign.host}
    state, row = next((pair for pair in full if short_name(pair[0].host or "") in hosts), full[0])
    named = [s for s in told if row.path != "/" and row.path in s.text]
    weight = kernel_events.state_weight(case)
    what = "has no inode left" if row.inodes else "is full"
    message = f"The file system {row.path}{' of ' + state.host if state.host else ''} {what}."
    sure = Grade.PROVES if named or said else Grade.SUPPORTS if told else Grade.HINTS
    if not told and weight.severity == "error":
        weight = replace(weight, severity="warning")
    percent = f"{row.used_percent} % used of {'inodes' if row.inodes else 'space'}"
    ref = replace(state.ref, locator=f"line {row.line}", quote=f"{row.device} {percent} {row.path}")
    ranks = statements.unless_all(case, statements.ranks_of(statements.first_to_fail(told)))
    if state.host:
        ranks = tuple(rank for rank in ranks if same_host(case.people.host_of(rank) or state.host, state.host))
    subject = Subject(ranks=ranks, hosts=(state.host,) if state.host else ())
    return [
        hardware_findings.found(
            case, _CLAIM, [ref, *building.refs(told)], message, sure, weight=weight, subject=subject
        )
    ]


def _is_full(row: FileSystem) -> bool:
    if row.device.startswith(_ALWAYS_FULL) or row.path.startswith(_NOT_WRITTEN):
        return False
    return row.used_percent == 100 and row.free in (0, None)
