"""What a report for people says, and in which order; text and Markdown only lay it out.

It stays short at any world size: ranks as ranges, lists with "and 4,000 more". The whole is in the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct, field

from whichrank.model.evidence import Coverage, Ref, Source
from whichrank.model.findings import CodePlace, Finding, Hold, Link, NextStep, Subject, Witness
from whichrank.model.verdict import Diagnosis, DifferingValue, Excerpt, Hypothesis, JobInfo, PhaseSeen, RankInfo
from whichrank.report import _coverage
from whichrank.report._words import counted, listed, percent, ranges, shortened

CULPRITS, PROOFS, PLACES, CYCLE, OTHERS, STANDINGS = 4, 3, 3, 8, 5, 6
STALE_S = 5.0
"""A dump that is older than the newest by so much tells where a rank was, not where it is."""
_OF_RANK = re.compile(r"(?:rank|Rank|RANK)[_.-]?(\d{1,6})(?!\d)")
QUOTE_LINES, QUOTE_CHARACTERS = 4, 140
SAID_ABOVE = "The evidence for it"
"""Instead of a finding's message where that is the sentence at the top."""
_WRITTEN = {
    "launched": " Written at the launch.",
    "rendezvous": " Written at the rendezvous.",
    "groups": " Written when groups were made.",
    "training": " Written during training.",
    "evaluation": " Written during evaluation.",
    "checkpoint": " Written during a checkpoint.",
    "leaving": " Written when processes were leaving.",
    "ended": " Written after a process had ended.",
}
CONSEQUENCE = " (a consequence)"

DISTURBS = {
    "none": "disturbs nothing",
    "pauses": "pauses a process for a moment",
    "load": "puts load on the machines",
    "ends": "ends the job",
}


class Point(Struct, frozen=True):
    """One statement, the lines under it, and words to be kept exactly as they are."""

    text: str
    details: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    inner: tuple[Point, ...] = ()


class Section(Struct, frozen=True):
    title: str
    points: list[Point]
    numbered: bool = False
    folded: bool = False
    """May be hidden until asked for."""


class Outline(Struct, frozen=True):
    sentence: str
    label: str
    sections: list[Section] = field(default_factory=list)


def outline(diagnosis: Diagnosis) -> Outline:
    """The report of one diagnosis, sections without content left out."""
    verdict = diagnosis.verdict
    alternatives = [Point(f"{percent(a.confidence)}  {a.cause}: {a.why}") for a in verdict.alternatives]
    sections = [
        Section("who", list(_who(diagnosis))),
        Section("nothing readable of", _unread(diagnosis)),
        Section("proof", _proof(diagnosis), numbered=True),
        Section("the code", [_excerpt(excerpt) for excerpt in diagnosis.excerpts]),
        Section("where the ranks are", _standings(diagnosis)),
        Section("values that differ", [_differing(value) for value in diagnosis.differing_values]),
        Section("the cycle", _cycle([link for link in verdict.certificate if isinstance(link, Hold)])),
        Section("where it began", _witnesses([link for link in verdict.certificate if isinstance(link, Witness)])),
        Section("what to do", [Point(line) for line in _now(diagnosis)], numbered=True),
        Section("how to fix it", [Point(step) for step in verdict.fix], numbered=True),
        Section("waiting ranks (not the cause)", _waiting(diagnosis)),
        Section("it could also be", alternatives),
        Section("also found", _also(diagnosis)),
        Section("next commands", [_command(step) for step in diagnosis.next]),
        Section("state of the job", [_phase(seen) for seen in diagnosis.phases]),
        Section("hypotheses", [_hypothesis(h) for h in diagnosis.hypotheses], numbered=True),
        Section("coverage", [Point(line) for line in _coverage.lines(diagnosis.coverage)], folded=True),
    ]
    return Outline(verdict.summary, _label(diagnosis), [s for s in sections if s.points])


def _label(diagnosis: Diagnosis) -> str:
    verdict, job = diagnosis.verdict, diagnosis.job
    words = [verdict.category.upper()]
    if verdict.cause and verdict.cause != verdict.category:
        words.append(verdict.cause)
    if verdict.category not in ("healthy", "unknown"):
        words.append(f"{percent(verdict.confidence)} sure")
    words += _job(job)
    return " · ".join(words)


def _job(job: JobInfo) -> Iterator[str]:
    if job.world_size:
        yield counted(job.world_size, "rank")
    if job.hosts:
        yield listed(job.hosts, 1) if len(job.hosts) == 1 else counted(len(job.hosts), "host")
    yield from job.backends
    if job.torch:
        yield f"torch {job.torch}"
    if job.nccl:
        yield f"NCCL {job.nccl}"
    if job.onset:
        yield f"since {job.onset}"
    if job.scheduler is not None:
        yield f"{job.scheduler.kind.capitalize()} job {job.scheduler.id}"


def candidates(ranks: Sequence[int]) -> str:
    """Who may be meant, where the evidence can't decide."""
    if len(ranks) == 1:
        return f"perhaps rank {ranks[0]}: the evidence does not decide it"
    return f"one of ranks {ranges(ranks)}: the evidence can't tell which"


_SAYS_NOTHING = ("an empty file", "not a format that whichrank knows")
"""What intake says of a file that a crash, a full disk or a bad copy left empty, or full of zeros."""


def unread_ranks(coverage: Coverage) -> dict[int, Source]:
    """Dumps, logs and stacks that are named for a rank and could not be read, where nothing else of it was."""
    known: set[int] = set()
    lost: dict[int, Source] = {}
    for source in coverage.sources:
        named = _OF_RANK.search(source.path.rsplit("/", 1)[-1])
        if named is None:
            continue
        if source.quality in ("complete", "partial"):
            known.add(int(named[1]))
        elif source.quality == "unusable" or source.note in _SAYS_NOTHING:
            lost[int(named[1])] = source
    return {rank: source for rank, source in sorted(lost.items()) if rank not in known}


def _unread(diagnosis: Diagnosis) -> list[Point]:
    lost = unread_ranks(diagnosis.coverage)
    points = [
        Point(f"rank {rank}: {source.path} could not be read ({source.note}), so what it did is not known")
        for rank, source in list(lost.items())[:OTHERS]
    ]
    if len(lost) > OTHERS:
        points.append(Point(f"and of ranks {ranges(list(lost)[OTHERS:])} ({len(lost) - OTHERS:,} more)"))
    return points


def _who(diagnosis: Diagnosis) -> Iterator[Point]:
    who = diagnosis.verdict.culprits
    known = {info.rank: info for info in diagnosis.ranks}
    for rank in who.ranks[:CULPRITS]:
        places = tuple(f"at {_place(code)}" for code in who.code if code.rank == rank)
        info = known.get(rank, RankInfo(rank))
        yield Point(_rank(info), (*_position(info, diagnosis), *places))
    if len(who.ranks) > CULPRITS:
        rest = who.ranks[CULPRITS:]
        yield Point(f"and rank{'s' if len(rest) > 1 else ''} {ranges(rest)} ({len(rest):,} more)")
    if who.candidates:
        yield Point(candidates(who.candidates))
    elsewhere = [code for code in who.code if code.rank is None or code.rank not in who.ranks]
    for code in elsewhere[:CULPRITS]:
        yield Point(f"code: {_place(code)}" + ("" if code.rank is None else f" (rank {code.rank})"))
    if who.gpus:
        yield Point(f"GPU {listed([f'{g.index} of {g.host}' for g in who.gpus], CULPRITS)}")
    if who.links:
        yield Point(f"link {listed([link_name(link) for link in who.links], CULPRITS)}")
    if who.hosts and not any(known[rank].host for rank in who.ranks if rank in known):
        yield Point(f"host {listed(who.hosts, CULPRITS)}")


def link_name(link: Link) -> str:
    """Both ends, or the one that is known."""
    ends = (f"{end.host} {end.device}".strip() for end in (link.a, link.b))
    return " – ".join(end for end in ends if end)


def _rank(info: RankInfo) -> str:
    words = [f"rank {info.rank}"]
    if info.coords:
        words.append("(" + " ".join(f"{axis}={place}" for axis, place in info.coords.items()) + ")")
    if info.host:
        words.append(f"on {info.host}")
    facts = []
    if info.gpu is not None:
        facts.append(f"GPU {info.gpu}")
    if info.pid is not None:
        facts.append(f"pid {info.pid}")
    return ", ".join([" ".join(words), *facts])


def _position(info: RankInfo, diagnosis: Diagnosis) -> Iterator[str]:
    where = info.reached
    if where is None:
        if info.state != "unknown":
            yield f"state: {info.state}"
        return
    names = {group.id: group.desc if group.desc not in ("", "undefined") else group.name for group in diagnosis.groups}
    state = "last seen" if info.state == "unknown" else info.state
    word = "at" if info.at is not None else "after it finished"
    yield f"{state} {word} {where.op} {where.seq} of group {names.get(where.group, where.group)}{_age(info, diagnosis)}"


def _age(info: RankInfo, diagnosis: Diagnosis) -> str:
    """How much older the evidence for this is than the newest of any rank; empty where it is as new."""
    newest = max((rank.seen for rank in diagnosis.ranks if rank.seen), default=None)
    if info.seen is None or newest is None:
        return ""
    moments = [datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (newest, info.seen)]
    older = (moments[0] - moments[1]).total_seconds()
    return f" (by a dump {older:,.0f} s older than the newest)" if older >= STALE_S else ""


def _place(code: CodePlace) -> str:
    function = f" in {code.function}" if code.function else ""
    return f"{code.file}:{code.line}{function}"


def _proof(diagnosis: Diagnosis) -> list[Point]:
    own = [f for f in diagnosis.findings if f.cause == diagnosis.verdict.cause]
    points = [_finding(finding, diagnosis.verdict.summary) for finding in own[:PROOFS]]
    if len(own) > PROOFS:
        points.append(Point(f"{counted(len(own) - PROOFS, 'more finding')} of the same kind (in the JSON)"))
    return points


def _finding(finding: Finding, said: str) -> Point:
    shown = [_quote(ref) for ref in finding.evidence[:PLACES]]
    if len(finding.evidence) > PLACES:
        left = finding.evidence[PLACES:]
        shown.append(Point(f"and {counted(len(left), 'more place')}: {listed([r.source for r in left])}"))
    # The sentence at the top is often this finding's own: it is not said twice.
    message = SAID_ABOVE if finding.message == said else finding.message
    return Point(f"{message} [{finding.code}]", inner=tuple(shown))


def _quote(ref: Ref) -> Point:
    where = f"{ref.source}, {ref.locator}" if ref.locator else ref.source
    extra = [] if ref.rank is None else [f"rank {ref.rank}"]
    extra += [word for word in (ref.host, ref.time) if word]
    lines = [shortened(line, QUOTE_CHARACTERS) for line in ref.quote.splitlines()[: QUOTE_LINES + 1]]
    if len(lines) > QUOTE_LINES:
        lines[QUOTE_LINES:] = ["…"]
    return Point(where + (f" ({', '.join(extra)})" if extra else ""), verbatim=tuple(lines))


def _excerpt(excerpt: Excerpt) -> Point:
    whose = "" if excerpt.place.rank is None else f" (rank {excerpt.place.rank})"
    numbered = (
        f"{'→' if number == excerpt.place.line else ' '} {number:>5}  {line}"
        for number, line in enumerate(excerpt.lines, excerpt.first)
    )
    return Point(f"{excerpt.path}:{excerpt.place.line}{whose}", excerpt.said, verbatim=tuple(numbered))


def _standings(diagnosis: Diagnosis) -> list[Point]:
    rows = diagnosis.standings
    points = [
        Point(f"{counted(len(row.ranks), 'rank')} at {row.place}, {row.doing}: {ranges(row.ranks)}")
        for row in rows[:STANDINGS]
    ]
    if len(rows) > STANDINGS:
        points.append(Point(f"and {counted(len(rows) - STANDINGS, 'more place')} (in the JSON)"))
    return points


def _cycle(certificate: Sequence[Hold]) -> list[Point]:
    points = [
        Point(
            f"rank {hold.rank} holds {hold.holds} and waits for {hold.waits}",
            (_place(hold.code),) if hold.code else (),
        )
        for hold in certificate[:CYCLE]
    ]
    if len(certificate) > CYCLE:
        points.append(Point(f"and {counted(len(certificate) - CYCLE, 'more rank')}, back to the first"))
    return points


def _witnesses(witnesses: Sequence[Witness]) -> list[Point]:
    points = []
    for seen in witnesses[:CYCLE]:
        what = f"{seen.module} ({seen.tensor})" if seen.module else seen.tensor
        at = "before the first step" if seen.step < 0 else f"step {seen.step}"
        points.append(Point(f"rank {seen.rank}, {at}: {what} {seen.value}"))
    if len(witnesses) > CYCLE:
        points.append(Point(f"and {counted(len(witnesses) - CYCLE, 'more rank')}"))
    return points


def _now(diagnosis: Diagnosis) -> Iterator[str]:
    """What can be said of any fault of this kind; what is particular to the cause is in the fix."""
    verdict = diagnosis.verdict
    gather = "the next commands below" if diagnosis.next else ""
    if verdict.category == "hang":
        if gather:
            yield f"If the job still runs, take {gather} first: stopping it destroys that evidence."
        yield "A hang does not end by itself: stop the job, fix the cause, restart from a checkpoint."
    elif verdict.category == "crash":
        if verdict.cause == "unknown":
            yield "Find the rank that failed first: the errors of the others follow from it."
        else:
            yield _where_to_look(verdict.culprits, diagnosis.job.world_size)
    elif verdict.category == "slow":
        yield "The job goes on; nothing has to be stopped to act on this."
    elif verdict.category == "corruption":
        since = f" {diagnosis.job.onset}" if diagnosis.job.onset else " it began"
        yield f"Stop the job: its numbers are wrong. Go back to a checkpoint from before{since}."
    elif verdict.category == "config":
        yield "Change the setting before the next start; a running job does not take it up."
    elif verdict.category == "unknown":
        yield "Don't blame a rank on this evidence."
        if gather:
            yield f"Run {gather}, and diagnose again with what they write."


def _where_to_look(culprits: Subject, world: int | None) -> str:
    ranks, hosts = culprits.ranks, culprits.hosts
    if len(ranks) > 1 and len(ranks) == world:
        return "All ranks failed by themselves: look at one of them first."
    if len(ranks) > 1:
        return f"Look at ranks {ranges(ranks)} only: the errors of the other ranks follow from theirs."
    who = f"rank {ranks[0]}" if ranks else listed(hosts, CULPRITS) if hosts else "the proof"
    return f"Look at {who} only: the errors of the other ranks follow from it."


def _waiting(diagnosis: Diagnosis) -> list[Point]:
    victims = diagnosis.verdict.victims
    if not victims:
        return []
    world = diagnosis.job.world_size
    share = f"{len(victims):,} of {world:,}" if world else counted(len(victims), "rank")
    return [Point(f"rank{'s' if len(victims) > 1 else ''} {ranges(victims)} ({share})")]


def _also(diagnosis: Diagnosis) -> list[Point]:
    points = [Point(f"{v.category} · {v.cause}: {v.summary}") for v in diagnosis.incidents[:OTHERS]]
    told = {verdict.summary for verdict in diagnosis.incidents[:OTHERS]}
    other = [
        f"{finding.message} [{finding.code}]" + (CONSEQUENCE if index in diagnosis.consequence_of else "")
        for index, finding in enumerate(diagnosis.findings)
        if finding.cause != diagnosis.verdict.cause and finding.message not in told
    ]
    points += [Point(line) for line in other[:OTHERS]]
    left = len(diagnosis.incidents[OTHERS:]) + len(other[OTHERS:])
    return [*points, Point(f"and {left:,} more (in the JSON)")] if left else points


def _differing(held: DifferingValue) -> Point:
    at = f"{held.place.file.rpartition('/')[2]}:{held.place.line} in {held.place.function}"
    return Point(f"{held.name} = {held.value} at {at}; {held.others} on the other ranks")


def _phase(seen: PhaseSeen) -> Point:
    who = f", rank{'s' if len(seen.ranks) > 1 else ''} {ranges(seen.ranks)}" if seen.ranks else ""
    since = f", since {seen.since}" if seen.since else ""
    ref = seen.evidence
    return Point(f"{seen.phase}{who}{since}", (f"{ref.source}, {ref.locator}: {ref.quote}"[:200],))


def _hypothesis(hypothesis: Hypothesis) -> Point:
    """A cause with all that speaks for it and against it."""
    who = f", rank{'s' if len(hypothesis.ranks) > 1 else ''} {ranges(hypothesis.ranks)}" if hypothesis.ranks else ""
    said = [
        f"+ {a.grade.word} ({a.kind}): {a.says} [{a.code}]{_WRITTEN.get(a.phase or '', '')}"
        for a in hypothesis.arguments_for
    ]
    said += [f"- {a.grade.word}: {a.says}" for a in hypothesis.arguments_against]
    return Point(f"{hypothesis.cause}{who}: {percent(hypothesis.confidence)}", tuple(said))


def _command(step: NextStep) -> Point:
    settles = f" Settles: {', '.join(step.settles)}." if step.settles else ""
    return Point(f"{step.why} ({DISTURBS[step.disturbs]}).{settles}", verbatim=(step.command,))
