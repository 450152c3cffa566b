"""Are these hosts fit to start? Measure every host and the ways between them, judge, and say who should stay out."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

from msgspec import Struct
from msgspec.structs import asdict, replace

from whichrank.fleet.engines import Engine
from whichrank.fleet.host_helpers import HostHelpers, Reply, host_helpers
from whichrank.flows.discovery import rules_below
from whichrank.flows.preflight import link_states, links
from whichrank.flows.preflight.peers import Measurements
from whichrank.model.evidence import Coverage, Ref, Skipped, Source
from whichrank.model.findings import Finding, Gpu, Grade, NotEvaluated, Subject
from whichrank.model.preflight import NOTHING_TO_CHECK, Check, HostCheck, Launch, LinkCheck
from whichrank.records.inspection import HostProbes, Inspection, Pace, ProbeResult

AGENT = ("-m", "whichrank.evidence.probes._agent")
_START_S, _START_LEAST_S = 60.0, 20.0
"""For a helper to answer; where the others answer at once, those that don't get the second."""
_PROBES_S = 60.0
_SUSPECTS, _OTHERS, _TURNS = 4, 3, 3
"""How many slow hosts work again, beside how many others, how often."""
_ORDER = {"error": 0, "warning": 1, "info": 2}
Progress = Callable[[str, int, int], None]


class Wishes(Struct, frozen=True):
    """How far to look."""

    launch: Launch
    full: bool = False
    """Measure throughput and speed of work too: it disturbs jobs that run."""
    thorough: bool = False
    """Every pair of hosts, with its throughput."""
    quick: bool = False
    """Hosts alone, nothing between them."""
    connect_s: float = 3.0
    iperf: bool = True
    """Throughput by iperf3, where hosts have it."""


class Preflight(Struct, frozen=True):
    """What was found."""

    hosts: Mapping[str, Sequence[HostCheck]]
    links: Sequence[LinkCheck]
    findings: Sequence[Finding]
    exclude: Sequence[str]
    coverage: Coverage
    inspection: Inspection

    @property
    def wrong(self) -> bool:
        return any(finding.severity != "info" for finding in self.findings)

    @property
    def unfit(self) -> bool:
        """Whether something is wrong that no job should start with."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def blind(self) -> bool:
        """Whether nothing at all could be told."""
        return not any(check.state != "unknown" for checks in self.hosts.values() for check in checks)


def preflight(
    engine: Engine, wishes: Wishes, *, agent: Sequence[str] | None = None, progress: Progress | None = None
) -> Preflight:
    """Measure through the engine, then judge."""
    with host_helpers(engine, agent or [sys.executable, *AGENT]) as everyone:
        inspection = measure(everyone, engine, wishes, progress or (lambda *_: None))
    return judge(inspection)


def of_copies(port: int, wishes: Wishes) -> Preflight | None:
    """This process is one of N copies that a launcher started: rank 0 leads and has the result, the others serve it."""
    from whichrank.evidence.probes import _agent
    from whichrank.fleet import copies
    from whichrank.fleet.engines import here

    if os.environ["RANK"] != "0":
        copies.follow(_agent.serve_socket, port)
        return None
    everyone, idle = copies.lead([sys.executable, *AGENT], port)
    try:
        hosts = replace(here.engine(), hosts=tuple(everyone.channels))
        return judge(measure(everyone, hosts, wishes, lambda *_: None))
    finally:
        everyone.close()
        copies.say_end(idle)


def measure(everyone: HostHelpers, engine: Engine, wishes: Wishes, progress: Progress) -> Inspection:
    """Ask all hosts at once: first about themselves, then about each other."""
    launch = replace(wishes.launch, hosts=len(engine.hosts), load=wishes.full)
    progress("starting", 0, 4)
    hello = everyone.ask_all({"do": "hello"}, _START_S, _START_LEAST_S)
    patience_s = _START_LEAST_S if everyone.hosts else _START_S
    hello |= everyone.ask({host: {"do": "hello"} for host in everyone.try_again()}, patience_s)
    progress("host checks", 1, 4)
    answers = everyone.ask_all({"do": "probe", "launch": asdict(launch)}, _PROBES_S)
    token = secrets.token_hex(16)
    between = Measurements()
    if len(everyone.hosts) > 1 and not wishes.quick:
        progress("between hosts", 2, 4)
        between = links.measure(everyone, engine, launch, token, wishes)
    paces: list[Pace] = []
    loaded: dict[str, dict[str, ProbeResult]] = {}
    if wishes.full and not wishes.quick:
        progress("work", 3, 4)
        waves = _waves(hello)
        paces = _paces(everyone, launch, waves)
        loaded = {
            host: found for wave in waves for host, found in _loaded(everyone, wave, launch, "disk_speed").items()
        }
    progress("done", 4, 4)
    probed = [
        HostProbes(host, {**_results(answers[host]), **loaded.get(host, {})}, everyone.lost.get(host, ""))
        if host in answers
        else HostProbes(host, unreached=everyone.lost.get(host, "no answer"))
        for host in engine.hosts
    ]
    return Inspection(
        probed, launch, between.attempts, between.volleys, between.rates, between.clocks, paces, between.names,
        between.addresses, between.loss, between.paths, between.slow, between.rdma_rates, between.rdma_slow,
    )  # fmt: skip


def _results(reply: Reply) -> dict[str, ProbeResult]:
    found = {}
    for name, answer in (reply.result if isinstance(reply.result, dict) else {}).items():
        if isinstance(answer, dict):
            values = answer.get("value")
            why = str(answer.get("why") or "") or ("" if isinstance(values, dict) else "an answer that is no object")
            found[str(name)] = ProbeResult(
                str(name), values if isinstance(values, dict) else {}, why, float(answer.get("took_s") or 0.0),
                bool(answer.get("timed_out")), bool(answer.get("absent")),
            )  # fmt: skip
    return found


def _waves(hello: Mapping[str, Reply]) -> list[list[str]]:
    """Hosts that can work at the same time: containers on one machine (one boot) would disturb each other."""
    machines: dict[str, list[str]] = {}
    for host, reply in hello.items():
        boot = reply.result.get("boot_id") if isinstance(reply.result, dict) else None
        machines.setdefault(str(boot or host), []).append(host)
    most = max(map(len, machines.values()), default=0)
    return [[hosts[number] for hosts in machines.values() if number < len(hosts)] for number in range(most)]


def _paces(everyone: HostHelpers, launch: Launch, waves: Sequence[Sequence[str]]) -> list[Pace]:
    """The same work on all hosts; those that are slow, and some others, do it again in turn, one host at a time."""
    from statistics import median

    paces = [pace for wave in waves for pace in _work(everyone, wave, launch, alone=False)]
    if len(paces) < 3:
        return paces
    usual = median(pace.seconds for pace in paces)
    by_speed = sorted(paces, key=lambda pace: pace.seconds)
    suspects = [pace.host for pace in by_speed[::-1] if pace.seconds > 1.3 * usual][:_SUSPECTS]
    others = [pace.host for pace in by_speed if pace.seconds <= 1.3 * usual][:_OTHERS]
    for _ in range(_TURNS if suspects else 0):
        again = [pace for host in [*others, *suspects] for pace in _work(everyone, [host], launch, alone=True)]
        paces += again
        slowest = max((pace.seconds for pace in again if pace.host in others), default=0.0)
        if all(pace.throttled or pace.seconds > 3 * slowest for pace in again if pace.host in suspects):
            break  # no need to ask chance
    return paces


def _loaded(
    everyone: HostHelpers, hosts: Sequence[str], launch: Launch, probe: str
) -> dict[str, dict[str, ProbeResult]]:
    """A probe that loads a host, on these hosts at the same time."""
    request = {"do": "probe", "probes": [probe], "launch": asdict(launch)}
    return {host: _results(reply) for host, reply in everyone.ask(dict.fromkeys(hosts, request), _PROBES_S).items()}


def _work(everyone: HostHelpers, hosts: Sequence[str], launch: Launch, *, alone: bool) -> list[Pace]:
    found = []
    for host, results in _loaded(everyone, hosts, launch, "work").items():
        work = results.get("work")
        if work is not None and not work.why:
            throttled, rounds = work.values.get("throttled"), work.values["rounds_s"]
            seconds, cpu_seconds = sum(rounds) / len(rounds), work.values["cpu_s"] / len(rounds)
            found.append(Pace(host, seconds, cpu_seconds, throttled if isinstance(throttled, int) else None, alone))
    return found


# -- judging


def judge(inspection: Inspection) -> Preflight:
    """Every rule over every host, and every rule over all of them."""
    findings: list[Finding] = []
    checks: dict[str, list[HostCheck]] = {}
    states: dict[str, set[str]] = {}
    missing: dict[str, str] = {}
    launch = replace(inspection.launch, hosts=1) if _one_machine(inspection) else inspection.launch
    for host in inspection.hosts:
        own = checks.setdefault(host.host, [])
        if host.unreached and not host.results:
            own.append(HostCheck("reach", "PREF101", "unhealthy", None, host.unreached))
            continue
        for rule in rules_below("preflight_host"):
            check = _ask(rule, host, launch)
            if check is None:
                missing.setdefault(rule.CODE, host.missing(rule.PROBE) if host.absent(rule.PROBE) else NOTHING_TO_CHECK)
                continue
            states.setdefault(rule.CODE, set()).add(check.state)
            own.append(HostCheck(rule.CHECK, rule.CODE, check.state, check.value, check.why))
            if check.state == "unknown":
                missing[rule.CODE] = check.why
            if check.state == "unhealthy":
                findings.append(_finding(rule, host, check))
    fleet, found, clear, skipped = _ask_fleet(inspection)
    findings += fleet
    found |= {code for code, seen in states.items() if "unhealthy" in seen}
    clear |= {code for code, seen in states.items() if seen == {"healthy"}}
    skipped += [Skipped(code, why) for code, why in missing.items() if code not in found | clear]
    findings.sort(key=lambda f: (_ORDER[f.severity], f.code, f.subject.hosts))
    coverage = Coverage(
        tuple(_sources(inspection)), tuple(sorted(found)), tuple(sorted(clear)),
        tuple(sorted(skipped, key=lambda s: s.code)),
    )  # fmt: skip
    return Preflight(checks, link_states.states(inspection), findings, _exclude(findings), coverage, inspection)


def _one_machine(inspection: Inspection) -> bool:
    """Whether all hosts are parts of one machine that share its name, such as bare network namespaces."""
    told = [host.values("names") for host in inspection.reached()]
    machines = {(values.get("hostname"), values.get("boot_id")) for values in told if values}
    return len(told) > 1 and all(told) and len(machines) == 1 and all(next(iter(machines)))


def _ask(rule: ModuleType, host: HostProbes, launch: Launch) -> Check | None:
    from whichrank.model.preflight import unknown

    values = host.values(rule.PROBE)
    if values is None:
        return None if host.absent(rule.PROBE) else unknown(host.missing(rule.PROBE))
    try:
        check: Check | None = rule.judge(values, host, launch)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:  # another host sent nonsense
        return unknown(
            f"the answer of the probe {rule.PROBE} can't be understood ({type(error).__name__}: {error})"[:200]
        )
    return check


def _finding(rule: ModuleType, host: HostProbes, check: Check) -> Finding:
    words = check.quote or (str(check.value) if check.value is not None else check.why)
    gpus = tuple(Gpu(host.host, index, _uuid(host, index)) for index in check.gpus)
    subject = Subject(hosts=(host.host,), gpus=gpus)
    ref = Ref(f"probe {rule.PROBE}", host.host, words[:400], None, host.host)
    return Finding(
        rule.CODE, rule.CAUSE, "config", check.severity, Grade.PROVES, subject, f"{host.host}: {check.why}.", (ref,),
        (*check.fix, *rule.FIX), kind="host",
    )  # fmt: skip


def _uuid(host: HostProbes, index: int) -> str | None:
    for gpu in (host.values("gpus") or {}).get("gpus") or []:
        if gpu.get("index") == index:
            return str(gpu.get("uuid")) if gpu.get("uuid") else None
    return None


def _ask_fleet(inspection: Inspection) -> tuple[list[Finding], set[str], set[str], list[Skipped]]:
    findings: list[Finding] = []
    found: set[str] = set()
    clear: set[str] = set()
    skipped: list[Skipped] = []
    for rule in rules_below("preflight_fleet"):
        try:
            answer: list[Finding] | NotEvaluated = rule.judge(inspection)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:  # another host sent nonsense
            answer = NotEvaluated(f"answers that can be understood ({type(error).__name__}: {error})"[:200])
        if isinstance(answer, NotEvaluated):
            skipped.append(Skipped(rule.CODE, answer.missing))
            continue
        findings += answer
        (found if answer else clear).add(rule.CODE)
    return findings, found, clear, skipped


def _sources(inspection: Inspection) -> Iterable[Source]:
    for host in inspection.hosts:
        if host.unreached:
            yield Source(host.host, "reach", "unusable", host.unreached)
        for result in host.results.values():
            quality = "ignored" if result.absent else "unusable" if result.why else "complete"
            yield Source(f"{host.host}: {result.probe}", result.probe, quality, result.why)  # type: ignore[arg-type]


def _exclude(findings: Iterable[Finding]) -> list[str]:
    """Hosts with an error of their own; where only a pair or a whole group is bad, nobody is told apart."""
    named: dict[str, None] = {}
    for finding in findings:
        if finding.severity == "error" and len(finding.subject.hosts) == 1:
            named[finding.subject.hosts[0]] = None
        elif finding.severity == "error" and finding.code in ("PREF104", "PREF105", "PREF106"):
            named |= dict.fromkeys(finding.subject.hosts)
    return list(named)
