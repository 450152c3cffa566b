"""Findings built from statements of failure and from known messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whichrank.facts.messages import Signature
from whichrank.facts.taxonomy import causes
from whichrank.model.evidence import Ref
from whichrank.model.findings import (
    Alternative,
    Category,
    Finding,
    Gpu,
    Grade,
    Kind,
    NextStep,
    NotEvaluated,
    Severity,
    Subject,
)
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.outcome import failures
from whichrank.timeline.job_state.statements import Statement, is_traceback, only_hangs
from whichrank.timeline.job_state.trials import said_category
from whichrank.timeline.steps import pace

SILENT = NotEvaluated("output of the job: logs of the ranks, of the launcher or of NCCL")

"""The answer where there is no log at all."""

_MOST_REFS, _MOST_PEERS = 5, 16


class Claim(Struct, frozen=True):
    """What a rule always says, whoever is meant."""

    code: str
    cause: str
    fix: tuple[str, ...]
    category: Category = "crash"
    severity: Severity = "error"
    blames: Literal["rank", "host", "gpu"] = "rank"
    """What is named beside the rank: nothing, its host, or its GPU."""
    alternatives: tuple[tuple[str, str], ...] = ()
    """Other causes and why, the likeliest first."""
    kind: Kind | None = None
    """The evidence that it rests on, where the signs don't tell."""
    next: tuple[NextStep, ...] = ()


def hanging(claim: Claim, hangs: bool) -> Claim:
    """The claim, as one about a hang where it is one."""
    return replace(claim, category="hang") if hangs else claim


def found(
    case: Case, claim: Claim, signs: Sequence[Statement], message: str, grade: Grade, ranks: tuple[int, ...] = ()
) -> Finding:
    """A finding about these ranks, proven by these signs."""
    times = [s.time_ns for s in signs if s.time_ns is not None] or [s.about_ns for s in signs if s.about_ns is not None]
    return Finding(
        code=claim.code,
        cause=claim.cause,
        category=_category(case, claim),
        severity=claim.severity,
        grade=grade,
        subject=_subject(case, claim, signs, ranks),
        message=message,
        evidence=refs(signs),
        fix=claim.fix,
        victims=tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else (),
        alternatives=tuple(Alternative(*other) for other in claim.alternatives),
        next=claim.next,
        onset_ns=min(times) if times else None,
        kind=claim.kind or ("reports" if all(s.kind == "reports" for s in signs) else "messages"),
    )


def _category(case: Case, claim: Claim) -> Category:
    """What the claim makes of the job, unless the job itself shows that it only hangs or is only slow."""
    if claim.category != "crash":
        return claim.category
    usual = causes()[claim.cause].usual_category if claim.cause in causes() else ""
    # What a check of torch's ended was searched for with that check because the job hung.
    if only_hangs(case) or (usual == said_category(case) == "hang"):
        return "hang"
    unharmed = usual == "slow" and not failures(case) and said_category(case) != "crash"
    return "slow" if unharmed else "crash"


def refs(signs: Iterable[Statement]) -> tuple[Ref, ...]:
    """One quote per line of the evidence, one per rank first."""
    unique = {(s.ref.source, s.ref.locator): s for s in reversed(list(signs))}
    ordered = _without_openings(list(reversed(unique.values())))
    first = {s.rank: s for s in reversed(ordered)}
    chosen = [s for s in ordered if first[s.rank] is s] + [s for s in ordered if first[s.rank] is not s]
    return tuple(s.ref for s in chosen[:_MOST_REFS])


def _without_openings(signs: Sequence[Statement]) -> list[Statement]:
    """Without tracebacks (cited by the line in which they open) whose last line is cited by itself."""
    cited = {(s.ref.source, s.rank, s.ref.quote.strip()) for s in signs if not is_traceback(s)}
    return [s for s in signs if not is_traceback(s) or (s.ref.source, s.rank, s.ref.quote.strip()) not in cited]


def _subject(case: Case, claim: Claim, signs: Sequence[Statement], ranks: tuple[int, ...]) -> Subject:
    code = tuple(dict.fromkeys(s.code for s in signs if s.code is not None and (not ranks or s.rank in ranks)))[:4]
    if claim.blames == "rank":
        return Subject(ranks=ranks, code=code)
    named = [case.people.host_of(rank) for rank in ranks] + [s.host for s in signs if not ranks or s.rank in ranks]
    hosts = tuple(sorted({host for host in named if host and host != "localhost"}))
    if claim.blames == "host":
        return Subject(ranks=ranks, hosts=hosts, code=code)
    people = [case.people.by_rank[rank] for rank in ranks if rank in case.people.by_rank]
    gpus = tuple(Gpu(p.host, p.gpu) for p in people if p.host is not None and p.gpu is not None)
    return Subject(ranks=ranks, gpus=gpus, code=code)


def who(case: Case, ranks: tuple[int, ...], signs: Sequence[Statement] = ()) -> str:
    """`Rank 3 on node7`, `Ranks 2, 5`, `Local rank 2`, or `A process` where nothing says which."""
    if len(ranks) == 1:
        host = case.people.host_of(ranks[0])
        name = wording.who(case, ranks[0]).capitalize()
        named = not host or host == "localhost" or name.endswith(f" on {host}")
        return name if named else f"{name} on {host}"
    if ranks:
        return wording.ranks_text(ranks).capitalize()
    local = {s.local_rank for s in signs if s.local_rank is not None}
    return f"Local rank {min(local)}" if len(local) == 1 else "A process"


def whose(case: Case, ranks: tuple[int, ...], signs: Sequence[Statement] = ()) -> str:
    """As `who`, within a sentence."""
    name = who(case, ranks, signs)
    return name[0].lower() + name[1:]


def others(case: Case, ranks: tuple[int, ...]) -> str:
    """`; ranks 0-2 only lost their peer`, where there are others."""
    heard = {event.rank for event in case.log_events} | set(case.people.by_rank)
    rest = [rank for rank in range(case.world) if rank not in ranks and rank in heard]
    return f"; what {wording.ranks_text(rest)} report{'s' if len(rest) == 1 else ''} follows from it" if (
        rest and ranks
    ) else ""  # fmt: skip


def short(text: str, most: int = 160) -> str:
    """The first line of a message, cut to a sentence's length, and without the full stop that the sentence has."""
    line = text.strip().partition("\n")[0].strip(' \t",').rstrip(".!")
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def judged(
    case: Case,
    claim: Claim,
    tell: str,
    *,
    found: Sequence[known_messages.Seen] | None = None,
    grade: Callable[[Sequence[known_messages.Seen]], Grade] = known_messages.grade,
) -> list[Finding] | NotEvaluated:
    """The finding that the messages of the claim's cause make, if there is a root among them.

    `tell` is the sentence; `{who}` stands for the ranks or hosts (in lower case unless it opens the sentence), `{what}`
    for the words of the first message.
    """
    if not statements.heard(case):
        return SILENT
    speaking = known_messages.of_cause(case, claim.cause) if found is None else list(found)
    if claim.category == "slow":
        speaking = [s for s in speaking if not pace.kept_pace(case, s.event)]
    roots = [s for s in speaking if s.signature.role == "root"]
    if not (roots if found is None else speaking):
        return []
    return [tell_of(case, claim, tell, speaking, grade(speaking))]


def tell_of(case: Case, claim: Claim, tell: str, speaking: Sequence[known_messages.Seen], grade: Grade) -> Finding:
    """The finding itself."""
    roots = [s for s in speaking if s.signature.role == "root"] or list(speaking)
    first = statements.first_to_fail([s.sign for s in roots])
    meant = {id(sign) for sign in first}
    blamed = [s for s in roots if id(s.sign) in meant]
    lead = max(blamed, key=lambda s: s.signature.grade)
    named = claim if claim.alternatives else replace(claim, alternatives=_also(lead.signature))
    ranks = _ranks(case, blamed)
    shown = [lead.sign, *first, *(s.sign for s in speaking)]
    who = _who(case, ranks, blamed)
    text = tell.format(who=who if tell.startswith("{who}") else who[0].lower() + who[1:], what=words(lead))
    finding = found(case, named, shown, text, grade, ranks)
    if lead.signature.who == "peer":
        peers = known_messages.peers(blamed)[:_MOST_PEERS]
        return replace(finding, subject=Subject(hosts=peers), victims=statements.ranks_of(first))
    if lead.signature.who == "nobody":
        return replace(finding, subject=Subject(), victims=())
    shared = _at_one_end(speaking)
    return replace(finding, subject=Subject(hosts=(shared,))) if shared else finding


def _at_one_end(speaking: Sequence[known_messages.Seen]) -> str | None:
    """The one host at an end of every path between two hosts that these messages complain of, of several paths."""
    named = ((s.group("source") or s.sign.host, known_messages.address(s.group("peer"))) for s in speaking)
    paths = {frozenset(filter(None, ends)) for ends in named if all(ends)}
    ends = frozenset.intersection(*paths) if len(paths) > 1 else frozenset()
    return next(iter(ends)) if len(ends) == 1 else None


def about(finding: Finding, subject: Subject) -> Finding:
    """The same finding about somebody, or something, else."""
    return replace(finding, subject=subject)


def _ranks(case: Case, blamed: Sequence[known_messages.Seen]) -> tuple[int, ...]:
    if blamed[0].signature.who not in ("printer", "host"):
        return ()
    return statements.unless_all(case, statements.ranks_of([s.sign for s in blamed]))


def _who(case: Case, ranks: tuple[int, ...], blamed: Sequence[known_messages.Seen]) -> str:
    if not ranks and blamed[0].signature.who == "host":
        hosts = sorted({s.sign.host for s in blamed if s.sign.host})
        if len(hosts) == 1:
            return f"A process on {hosts[0]}"
    return who(case, ranks, [s.sign for s in blamed])


def words(lead: known_messages.Seen) -> str:
    """The message itself, without what a launcher, a logger or a table put before it in the same line."""
    quote = lead.event.ref.quote
    found = lead.signature.search(quote)
    text = short(quote[quote.find(found[0]) :] if found else quote)
    return text.rstrip("'") if text.count("'") % 2 else text


def _also(signature: Signature) -> tuple[tuple[str, str], ...]:
    return tuple((cause, "the same message is printed then too") for cause in signature.also)
