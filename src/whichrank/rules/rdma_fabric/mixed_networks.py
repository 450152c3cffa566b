"""One host uses sockets, or fewer RDMA adapters, while the others use RDMA.

## What it finds
Hosts of one job whose NCCL chose another network than the rest: `Using network Socket` here, `Using network IB` there;
and hosts whose NCCL sees fewer adapters than all the others.

## Why it happens
The RDMA devices of one host are not visible to its container, its driver did not come up, its plug-in does not load, or
NCCL_IB_DISABLE is set there alone. NCCL does not compare the networks of the ranks: the first transfer between the two
kinds fails, or never ends. With fewer adapters every ring runs at the speed of that host.

## How it decides
By the network that each process names in NCCL's log. At least two processes name RDMA, and the hosts that name sockets
are fewer. A library that libibverbs can't load on those hosts, and on none that uses RDMA, is why. Adapters are counted
where all other hosts have the same number of them.

## Example
    gpu-a04:31032:31032 [0] NCCL INFO Using network IB
    gpu-a05:31040:31040 [0] NCCL INFO NET/IB : No device found.
    gpu-a05:31040:31040 [0] NCCL INFO Using network Socket

## Fix
Make the devices visible on that host (`ibv_devinfo`, /dev/infiniband in the container), or take the host out.

## Limits
Needs NCCL_DEBUG=INFO on the hosts concerned.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.nccl import NcclProcess
from whichrank.rules import building
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.outcome import observed
from whichrank.timeline.job_state.statements import Statement

CODE = "RDMA213"
CAUSE = "ib-device-not-exposed"

_NO_LIBRARY = "ib-missing-userspace"
_SOCKETS = "Socket"
_OFF = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("Socket", "socket", "SOCKET")}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told: dict[str, list[NcclProcess]] = {}
    for process in case.nccl:
        if process.host and process.network:
            told.setdefault(short_name(process.host), []).append(process)
    if len(told) < 2:
        return NotEvaluated("NCCL's log (NCCL_DEBUG=INFO) of several hosts")
    odd = {host for host, some in told.items() if all(p.network == _SOCKETS for p in some)}
    rest = {host for host, some in told.items() if all(p.network != _SOCKETS for p in some)}
    if not odd or len(odd) >= len(rest):
        return _with_fewer_adapters(told)
    return [_finding(case, sorted(odd), sorted(rest), told)]


def _with_fewer_adapters(told: dict[str, list[NcclProcess]]) -> list[Finding]:
    counts = {host: max(len(p.ib_devices) for p in some) for host, some in told.items()}
    usual = max(counts.values(), default=0)
    odd = sorted(host for host, count in counts.items() if count < usual)
    rest = [host for host in counts if host not in odd]
    if not odd or len(odd) >= len(rest) or len({counts[host] for host in odd}) > 1 or not counts[odd[0]]:
        return []
    where, name = ", ".join(odd[:4]), _set_there_alone("NCCL_IB_HCA", odd, rest, told)
    because = f": {name} is set there alone" if name else ""
    seen = f"{counts[odd[0]]} RDMA adapter{'s' if counts[odd[0]] > 1 else ''}"
    given = (f"Give {where} all of its adapters: /dev/infiniband in the container, ibv_devinfo, ibstat.",)
    return [
        Finding(
            code=CODE,
            cause="wrong-environment" if name else CAUSE,
            category="slow",
            severity="warning",
            grade=Grade.SUPPORTS,
            subject=Subject(hosts=tuple(odd)),
            message=f"NCCL sees {seen} on {where}, and {usual} on each of the other {len(rest)} hosts{because}.",
            evidence=tuple(_adapters(max(told[host], key=lambda p: len(p.ib_devices))) for host in (odd[0], rest[0])),
            alternatives=(Alternative("slow-network", "the ports may be down on that host"),),
            next=(NextStep("ibv_devinfo; ibstat", "shows which adapters that host has", (CAUSE,), "none"),),
            fix=(f"Set NCCL_IB_HCA alike on all hosts: {name} holds on {where} only.",) if name else given,
        )
    ]


def _adapters(process: NcclProcess) -> Ref:
    words = f"NET/IB : Using {' '.join(process.ib_devices)}"
    return Ref(process.source, f"line {process.first_line}", words[:400], None, process.host)


def _finding(case: Case, odd: list[str], rest: list[str], told: dict[str, list[NcclProcess]]) -> Finding:
    process, other = told[odd[0]][0], told[rest[0]][0]
    seen = observed(case)
    name = _switched_off(odd, rest, told)
    if not name and (why := _lacking_there_alone(case, odd, rest)):
        return _lacking(case, why, odd, rest, other)
    alternatives = (Alternative("wrong-environment", "RDMA may be switched off there by a variable"),)
    where = ", ".join(odd[:4])
    because = f": {name} is set there alone" if name else ""
    fix = (
        f"Make the RDMA devices visible on {where}: ibv_devinfo, /dev/infiniband in the container.",
        "Or take that host out of the job.",
    )
    return Finding(
        code=CODE,
        cause="wrong-environment" if name else CAUSE,
        category=seen if seen in ("hang", "crash") else "slow",
        severity="error" if seen in ("hang", "crash") else "warning",
        grade=Grade.SUPPORTS,
        subject=Subject(hosts=tuple(odd)),
        message=f"NCCL uses sockets on {where}, and {other.network} on the other {len(rest)} hosts{because}.",
        evidence=(_ref(process), _ref(other)),
        alternatives=(Alternative(CAUSE, "it may have no RDMA devices either"),) if name else alternatives,
        next=(
            NextStep("ibv_devinfo; ls /dev/infiniband", "shows whether that host has RDMA devices", (CAUSE,), "none"),
        ),
        fix=(f"Unset {name.split('=')[0]} on {where}, or set it alike on all hosts.",) if name else fix,
    )


def _lacking_there_alone(case: Case, odd: list[str], rest: list[str]) -> list[Statement]:
    """What libibverbs says that it lacks, on these hosts and on none that works."""
    missing = known_messages.of_cause(case, _NO_LIBRARY, ("root",))
    elsewhere = {_words(s.sign) for s in missing if s.sign.host and short_name(s.sign.host) in rest}
    mine = [s.sign for s in missing if s.sign.host and short_name(s.sign.host) in odd]
    return [sign for sign in mine if _words(sign) not in elsewhere]


def _words(sign: Statement) -> str:
    """What it says, without the process that says it."""
    at = sign.text.find("libibverbs")
    return sign.text[max(at, 0) :]


def _lacking(case: Case, why: list[Statement], odd: list[str], rest: list[str], other: NcclProcess) -> Finding:
    where, seen = ", ".join(odd[:4]), observed(case)
    return Finding(
        code=CODE,
        cause=_NO_LIBRARY,
        category=seen if seen in ("hang", "crash") else "slow",
        severity="error" if seen in ("hang", "crash") else "warning",
        grade=Grade.SUPPORTS,
        subject=Subject(hosts=tuple(odd)),
        message=f"NCCL uses sockets on {where}, and {other.network} on the other {len(rest)} hosts: a library for the "
        f"RDMA adapter is missing there alone: {building.short(_words(why[0]))}.",
        evidence=(why[0].ref, _ref(other)),
        alternatives=(Alternative(CAUSE, "it may have no RDMA devices either"),),
        fix=(f"Install the same RDMA user space (rdma-core, ibverbs-providers) on {where} as on the other hosts.",),
    )


def _switched_off(odd: list[str], rest: list[str], told: dict[str, list[NcclProcess]]) -> str:
    """The variable that only they have, and that takes RDMA away: `NCCL_IB_DISABLE=1`."""
    found = (_set_there_alone(name, odd, rest, told, values) for name, values in _OFF.items())
    return next(filter(None, found), "")


def _set_there_alone(
    name: str, odd: list[str], rest: list[str], told: dict[str, list[NcclProcess]], values: tuple[str, ...] = ()
) -> str:
    """`NAME=value` where only these hosts have it, and it is one of the values that matter (or any)."""
    mine = [p.env.get(name, "") for host in odd for p in told[host]]
    others = {p.env.get(name, "") for host in rest for p in told[host]}
    value = next((v for v in mine if v and (v in values or not values)), "")
    return f"{name}={value}" if value and value not in others else ""


def _ref(process: NcclProcess) -> Ref:
    said = "NET/IB : No device found; " if process.no_ib_device else ""
    return Ref(
        process.source, f"line {process.first_line}", f"{said}Using network {process.network}", None, process.host
    )
