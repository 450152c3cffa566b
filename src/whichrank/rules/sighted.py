"""What rules on known messages share: which were seen, whose they are, and how a cause is told by them.

A message of the knowledge base says itself what it means: its role, its cause, how sure that is and who is meant.
Roots tell a cause; hints only add to it; consequences, activities and harmless lines never accuse anybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from whichrank.facts.messages import Role, Signature, signatures
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.sighting import Sighting
from whichrank.rules import crashes
from whichrank.rules.crashes import Claim, Sign
from whichrank.timeline.case import Case

SUREST = 0.93
_MORE = 0.04
"""What every further kind of message for the same cause adds."""
_PORT = re.compile(r"(?:<\d{1,5}>|:\d{1,5}$).*")
_TIMED_OUT = ("watchdog_timeout", "gloo_timeout", "monitored_barrier_failed", "watchdog_stuck")
_LOST = ("peer_closed", "nccl_error", "store_error")


@dataclass(frozen=True, slots=True)
class Seen:
    """A sighting with what is known of its message."""

    signature: Signature
    sign: Sign
    sighting: Sighting

    @property
    def id(self) -> str:
        return self.signature.id

    def group(self, name: str) -> str:
        return self.sighting.groups.get(name, "")


def seen(case: Case, *names: str) -> list[Seen]:
    """Sightings of these signatures, whatever their role; those that training survived too."""
    if not case.sightings:
        return []
    table = signatures()
    return [Seen(table[s.signature], _sign(s), s) for s in case.sightings if s.signature in names]


def of_cause(case: Case, cause: str, roles: tuple[Role, ...] = ("root", "hint")) -> list[Seen]:
    """Sightings that speak for a cause and after which training did not simply go on."""
    if not case.sightings:
        return []
    names = [s.id for s in signatures().values() if s.cause == cause and s.role in roles]
    return [
        s for s in seen(case, *names) if not crashes.survived_at(case, s.sign.ref.source, s.sighting.line, s.sign.rank)
    ]


def judge(
    case: Case,
    claim: Claim,
    tell: str,
    *,
    found: Sequence[Seen] | None = None,
    sure: Callable[[Sequence[Seen]], float] | None = None,
) -> list[Finding] | NotEvaluated:
    """The finding that the messages of the claim's cause make, if there is a root among them.

    `tell` is the sentence; `{who}` stands for the ranks or hosts (in lower case unless it opens the sentence), `{what}`
    for the words of the first message.
    """
    if not crashes.heard(case):
        return crashes.SILENT
    speaking = of_cause(case, claim.cause) if found is None else list(found)
    roots = [s for s in speaking if s.signature.role == "root"]
    if not (roots if found is None else speaking):
        return []
    return [tell_of(case, claim, tell, speaking, sure(speaking) if sure else confidence(speaking))]


def tell_of(case: Case, claim: Claim, tell: str, speaking: Sequence[Seen], sure: float) -> Finding:
    """The finding itself."""
    roots = [s for s in speaking if s.signature.role == "root"] or list(speaking)
    first = crashes.first_to_fail([s.sign for s in roots])
    blamed = [s for s in roots if s.sign in first]
    lead = max(blamed, key=lambda s: s.signature.weight)
    named = claim if claim.alternatives else replace(claim, alternatives=_also(lead.signature))
    ranks = _ranks(case, blamed)
    shown = [lead.sign, *first, *(s.sign for s in speaking)]
    who = _who(case, ranks, blamed)
    text = tell.format(who=who if tell.startswith("{who}") else who[0].lower() + who[1:], what=_what(lead))
    finding = crashes.found(case, named, shown, text, sure, ranks)
    if lead.signature.who == "peer":
        peers = tuple(sorted({p for s in blamed if (p := address(s.group("peer")))}))[:4]
        return replace(finding, subject=Subject(hosts=peers), victims=crashes.ranks_of(first))
    if lead.signature.who == "nobody":
        return replace(finding, subject=Subject(), victims=())
    return finding


def about(finding: Finding, subject: Subject) -> Finding:
    """The same finding about somebody, or something, else."""
    return replace(finding, subject=subject)


def activities() -> tuple[str, ...]:
    """The signatures that say what a job does."""
    return tuple(s.id for s in signatures().values() if s.role == "activity")


def confidence(speaking: Iterable[Seen]) -> float:
    """The surest message, and a little for every other kind of message that says the same."""
    weights = {s.id: s.signature.weight for s in speaking}
    return min(SUREST, max(weights.values(), default=0.0) + _MORE * (len(weights) - 1))


def address(peer: str) -> str:
    """An address without its port."""
    return _PORT.sub("", peer.strip("[]"))


def timed_out(case: Case) -> list[Sign]:
    """What says that ranks waited in vain."""
    found = [crashes.sign(case, event) for event in crashes.events(case, *_TIMED_OUT)]
    return found + [s.sign for s in seen(case, "torch-watchdog-timeout", "gloo-timeout")]


def stands_still(case: Case) -> list[Sign]:
    """What says that the job hangs: time-outs, or the words of a person."""
    told = [s.sign for s in seen(case, "told-gpu-busy", "doing-first-item")]
    return timed_out(case) + told + [_sign(s) for s in crashes.index(case).said_to_hang]


def many_hosts(case: Case) -> bool:
    """Whether the evidence shows more than one host."""
    hosts = {p.host for p in case.nccl if p.host} | {s.host for s in case.sightings if s.host}
    return len(hosts) > 1 or any(node.nodes > 1 for p in case.nccl for node in p.nodes)


def has_run(case: Case) -> bool:
    """Whether training steps are at hand: then the start had worked."""
    return any(len(progress) > 1 for progress in case.progress)


def _sign(s: Sighting) -> Sign:
    about = s.time_ns if s.time_ns is not None else s.after_ns
    rank = crashes.told_rank(s)
    ref = replace(s.ref, rank=rank, host=s.host)
    return Sign(s.ref.quote, ref, rank, s.local_rank, s.time_ns, about, s.host)


def _ranks(case: Case, blamed: Sequence[Seen]) -> tuple[int, ...]:
    if blamed[0].signature.who not in ("printer", "host"):
        return ()
    return crashes.unless_all(case, crashes.ranks_of([s.sign for s in blamed]))


def _who(case: Case, ranks: tuple[int, ...], blamed: Sequence[Seen]) -> str:
    if not ranks and blamed[0].signature.who == "host":
        hosts = sorted({s.sign.host for s in blamed if s.sign.host})
        if len(hosts) == 1:
            return f"A process on {hosts[0]}"
    return crashes.who(case, ranks, [s.sign for s in blamed])


def _what(lead: Seen) -> str:
    """The message itself, without what a launcher, a logger or a table put before it in the same line."""
    quote = lead.sighting.ref.quote
    found = lead.signature.search(quote)
    text = crashes.short(quote[quote.find(found[0]) :] if found else quote)
    return text.rstrip("'") if text.count("'") % 2 else text


def _also(signature: Signature) -> tuple[tuple[str, float, str], ...]:
    return tuple((cause, share, "the same message is printed then too") for cause, share in signature.also)
