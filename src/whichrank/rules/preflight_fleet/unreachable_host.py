"""A host could not be asked at all.

What it finds: hosts on which the checks could not be started, or that stopped answering.

Why it happens: the host is down, ssh refuses the key, whichrank is not installed there.

How it decides: by the command that reaches the host.

Example: `node7: Permission denied (publickey)`

Fix: try the same command by hand: `ssh node7 true`.

Limits: a host that only this machine can't reach may work well for the others.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF101"
CAUSE = "host-lost"
FIX = ("Reach the host by hand (ssh HOST true) and see that whichrank is installed at the same path there.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if not inspection.hosts:
        return NotEvaluated("hosts to look at")
    return [
        found(CODE, CAUSE, "crash", hosts(host.host), f"{host.host} could not be checked: {host.unreached}.",
              [measured("reach", host.unreached, host.host)], FIX)
        for host in inspection.hosts if host.unreached
    ]  # fmt: skip
