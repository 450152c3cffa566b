"""A host differs from the others in a version, a setting or a limit.

What it finds: hosts of a job with another driver, kernel, torch or NCCL version, other NCCL or GLOO settings, another
MTU, number or kind of GPUs, other limits for locked memory or open files, fewer CPUs, another file system behind a
folder that was named.

Why it happens: images and nodes that were updated one by one, nodes of another batch in the same partition.

How it decides: what most hosts have is taken as meant; the others are named. Without a majority all are told. Versions
of NCCL, torch and the driver are errors or warnings; the rest is a warning.

Example: `driver: node3 has 535.183.06, 7 hosts have 580.65.06`

Fix: bring the named host to the state of the others, or leave it out of the job.

Limits: what is compared is what the probes can see without starting the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from whichrank.model.findings import Finding, NotEvaluated, Severity
from whichrank.records.inspection import HostProbes, Inspection, items, mapping, number, text
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF110"
CAUSE = "wrong-environment"
FIX = ("Bring the named host to the state of the others, or leave it out of the job.",)
_CAUSES = {
    "nccl": "nccl-version-mismatch",
    "driver": "driver-mismatch",
    "memlock": "memlock-ulimit",
    "shm": "shm-too-small",
}
_ERRORS = ("nccl", "torch")
_SIZES = {"shm": (2**20, " MiB"), "memory": (2**20, " MiB"), "CPUs allowed": (1, "")}
"""What differs a little between hosts of one kind, with the unit that people read."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    reached = list(inspection.reached())
    if len(reached) < 2:
        return NotEvaluated("at least two hosts to compare")
    findings = []
    traits = {host.host: _traits(host) for host in reached}
    for trait in sorted({name for own in traits.values() for name in own}):
        answers = {host: own[trait] for host, own in traits.items() if trait in own}
        # A setting that one host lacks is a difference; a measurement that failed there is not.
        if trait.startswith("setting "):
            answers = {host: traits[host].get(trait, "not set") for host in traits if "python" in traits[host]}
        findings += _odd_ones(trait, _rounded(answers, _SIZES[trait]) if trait in _SIZES else answers)
    return findings


def _odd_ones(trait: str, answers: Mapping[str, str]) -> list[Finding]:
    counts = Counter(answers.values()).most_common()
    if len(counts) < 2:
        return []
    usual, count = counts[0]
    if count * 2 <= len(answers) or len(answers) < 3:
        words = f"{trait} differs: " + ", ".join(f"{host} has {value}" for host, value in sorted(answers.items())[:8])
        return [_finding(trait, tuple(sorted(answers)), words)]
    found_ = []
    for value in dict.fromkeys(v for v in answers.values() if v != usual):
        odd = tuple(sorted(host for host, own in answers.items() if own == value))
        words = (
            f"{trait}: {', '.join(odd[:6])} {'has' if len(odd) == 1 else 'have'} {value}, {count} hosts have {usual}"
        )
        found_.append(_finding(trait, odd, words))
    return found_


def _finding(trait: str, odd: tuple[str, ...], words: str) -> Finding:
    severity: Severity = "error" if trait in _ERRORS else "warning"
    refs = [measured("compare", words, odd[0] if len(odd) == 1 else None)]
    cause = _CAUSES.get(trait, CAUSE)
    return found(CODE, cause, "config", hosts(*odd), f"{words[0].upper()}{words[1:]}.", refs, FIX, severity=severity)


def _traits(host: HostProbes) -> dict[str, str]:
    told: dict[str, Any] = {}
    for probe, trait in _TRAITS:
        values = host.values(probe)
        if values is not None:
            told |= trait(values)
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _software(values: Mapping[str, Any]) -> dict[str, Any]:
    versions = mapping(values, "versions")
    libraries = items(values, "nccl")
    settings = mapping(values, "environment")
    own = {f"setting {name}": value for name, value in settings.items() if not name.startswith("CUDA_VISIBLE")}
    return {**versions, "nccl": text(libraries[0], "version") if libraries else None, **own}


def _gpus(values: Mapping[str, Any]) -> dict[str, Any]:
    gpus = items(values, "gpus")
    names = sorted({str(mapping(gpu, "values").get("name", "")) for gpu in gpus} - {""})
    told: dict[str, Any] = {"number of GPUs": len(gpus), "kind of GPU": ", ".join(names)}
    # In containers the driver is often told by its own tools only.
    own = {"CUDA": gpus[0].get("cuda"), "driver": gpus[0].get("driver")} if gpus else {}
    return told | {name: value for name, value in own.items() if value}


def _interfaces(values: Mapping[str, Any]) -> dict[str, Any]:
    used = [i for i in items(values, "interfaces") if i.get("addresses") and text(i, "name") != "lo"]
    told: dict[str, Any] = {f"MTU of {text(i, 'name')}": i.get("mtu") for i in used}
    return {**told, **{f"speed of {text(i, 'name')}": i.get("speed_mbit") for i in used}}


def _limits(values: Mapping[str, Any]) -> dict[str, Any]:
    memlock, files, quota = (number(values, name) for name in ("memlock", "nofile", "cpu_quota"))
    told: dict[str, Any] = {"CPU quota": "none" if quota is None else f"{quota:g} CPUs"}
    if memlock is not None:
        told["memlock"] = "unlimited" if memlock < 0 else f"{memlock / 1024:,.0f} KiB"
    if files is not None:
        told["nofile"] = "unlimited" if files < 0 else f"{files:.0f}"
    return told


def _cpus(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"CPUs allowed": number(values, "allowed_count")}


def _memory(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number(values, key) for name, key in (("shm", "shm_size"), ("memory", "MemTotal"))}


def _folders(values: Mapping[str, Any]) -> dict[str, Any]:
    """A shared file system that one host has not mounted: its ranks would write to a disk of their own."""
    named = items(values, "folders") if values.get("named") else []
    return {
        f"file system of {text(f, 'path')}": f"{text(f, 'type')}{'' if f.get('exists') else ' (no such folder yet)'}"
        for f in named
    }


def _rdma(values: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"active RDMA ports": sum(text(p, "state") == "ACTIVE" for p in items(values, "ports"))}
    for port in items(values, "ports"):
        name = f"{port.get('device')}/{port.get('port')}"
        told |= {f"RDMA MTU of {name}": port.get("mtu"), f"firmware of {name}": port.get("firmware")}
        for key in ("pfc", "ecn"):
            if isinstance(port.get(key), list):
                told[f"{key.upper()} priorities of {name}"] = ",".join(map(str, port[key])) or "none"
    return told


def _rounded(answers: Mapping[str, str], unit: tuple[int, str]) -> dict[str, str]:
    """In words; hosts of one kind differ by what the system keeps, so what is near the middle counts as equal."""
    sizes = {host: float(value) for host, value in answers.items()}
    middle = median(sizes.values())
    each, name = unit
    return {
        host: f"about {(middle if 0.7 * middle <= size <= 1.4 * middle else size) / each:,.0f}{name}"
        for host, size in sizes.items()
    }


_TRAITS: tuple[tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]], ...] = (
    ("software", _software), ("gpus", _gpus), ("interfaces", _interfaces), ("limits", _limits), ("memory", _memory),
    ("rdma", _rdma), ("disk", _folders), ("cpu", _cpus),
)  # fmt: skip
