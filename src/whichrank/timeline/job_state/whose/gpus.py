"""Whose a fault of a GPU is: of the rank that uses it, by its address, its number, or the driver's own word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding, Gpu
from whichrank.model.late_pattern import late

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

OF_A_PROCESS = ("cuda-fault", "gpu-hardware")
"""What fails in a process fails on its host."""
_OF_A_GPU = ("pcie-degraded",)
_SEEN_BY_PEERS = ("nvlink-fault",)
_GPU = late(
    r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b|\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\bGPU node-\d{1,4}\b"
)
"""A bus address, the driver's name of a GPU, or its number in messages of AMD's run time."""
_INDEX = late(r"(?i)\bgpu[ _#:=]{0,2}(\d{1,2})\b(?!\s*GPUs)")
"""`gpu 5`, `GPU#5`."""


def among_peers(case: Case, finding: Finding) -> Finding:
    """What both ends of a link report is the fault of one of them, or of what is between them: of the one whose GPU
    alone the driver blames, where it does."""
    said = finding.subject.ranks
    if finding.cause not in _SEEN_BY_PEERS or finding.kind != "messages" or len(said) < 2:
        return finding
    from whichrank.timeline.job_state import kernel_events  # a diagnosis without logs of the kernel needs none

    faults, weight = kernel_events.counting(case, kernel_events.xid_events(case, "nvlink"))
    faults = faults if weight.severity == "error" else []
    named = {rank for event in faults for rank in case.hardware.ranks_on(event.host, event.device, event.pid)}
    if len(named) != 1 or not named < set(said):
        return replace(finding, subject=replace(finding.subject, ranks=(), candidates=said))
    victims = tuple(sorted({*finding.victims, *said} - named))
    return replace(finding, subject=replace(finding.subject, ranks=tuple(named)), victims=victims)


def at_address(case: Case, finding: Finding) -> Finding:
    """The rank on the GPU whose address the evidence names, where it names one and the finding nobody."""
    subject, cause = finding.subject, causes().get(finding.cause)
    of_gpu = cause is not None and (cause.family in OF_A_PROCESS or cause.slug in _OF_A_GPU)
    if not of_gpu or subject.ranks or subject.candidates or subject.gpus:
        return finding
    named = {(ref.host, device.lower()) for ref in finding.evidence for device in _GPU.findall(ref.quote)}
    if len(named) > 1:  # a bridge has an address too
        named = {(host, device) for host, device in named if case.hardware.ranks_on(host, device)}
    if len(named) != 1:
        return finding
    host, device = named.pop()
    gpu, ranks = case.hardware.gpu(host, device), case.hardware.ranks_on(host, device)
    gpus = (gpu,) if gpu is not None and gpu.host else ()
    if len(ranks) != 1:
        return replace(finding, subject=replace(subject, gpus=gpus))
    others = tuple(rank for rank in range(case.world) if rank not in ranks)
    return replace(finding, subject=replace(subject, ranks=ranks, gpus=gpus), victims=finding.victims or others)


def at_index(case: Case, finding: Finding) -> Finding:
    """The rank on the GPU whose number the evidence tells, on the one host that is meant."""
    subject, cause = finding.subject, causes().get(finding.cause)
    of_gpu = cause is not None and (cause.family in OF_A_PROCESS or cause.slug in _OF_A_GPU)
    numbers = {int(number) for ref in finding.evidence for number in _INDEX.findall(ref.quote)}
    if not of_gpu or subject.ranks or subject.gpus or len(subject.hosts) != 1 or len(numbers) != 1:
        return finding
    (number,) = numbers
    here = [case.people.by_rank[rank] for rank in case.people.ranks_on(subject.hosts[0])]
    ranks = tuple(process.rank for process in here if number in (process.gpu, process.local_rank))
    hosts = case.people.hosts()
    if not ranks and hosts and len(here) * len(hosts) == case.world and number < len(here):
        ranks = (here[number].rank,)
    gpu = Gpu(subject.hosts[0], number)
    others = tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else ()
    subject = replace(subject, ranks=ranks, gpus=(gpu,))
    return replace(finding, subject=subject, victims=finding.victims or others)
