"""What `diagnose` does: gather, read, line up, judge, choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from whichrank.evidence.intake import collect
from whichrank.facts import site
from whichrank.facts.taxonomy import causes
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.next_steps import filled, with_wanted
from whichrank.flows.diagnose.reading import Outcome, Progress, is_dump, is_prose, outcomes_of
from whichrank.flows.discovery import rules_for
from whichrank.flows.judging import judged
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Coverage, Source
from whichrank.model.findings import CodePlace, NextStep
from whichrank.model.moments import rfc3339_ns
from whichrank.model.verdict import Argument, Diagnosis, DifferingValue, Hypothesis, JobInfo, PhaseSeen, ScheduledJob
from whichrank.records.events.communication import GlooTimeout, PeerClosed
from whichrank.records.events.launchers import ElasticFailure, ProcessExit, SchedulerJob
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import positions
from whichrank.timeline.job_state.joined import joined
from whichrank.timeline.job_state.outcome import at_work, observed
from whichrank.timeline.job_state.trials import said_category
from whichrank.verdict.choose import Choice, choose
from whichrank.verdict.fit import against
from whichrank.verdict.settle import settled

Given = Path | Literal["-"]


def diagnose(
    paths: Sequence[Given],
    *,
    source: Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    why: bool = False,
    views: bool = False,
) -> Diagnosis:
    """Read everything below the paths and say what went wrong; `views` adds what a page draws."""
    with collect(paths) as intake:
        outcomes, noted, shortened = outcomes_of(intake.items, jobs=jobs, progress=progress)
        refused = [*intake.refused, *noted]
        jobs_in_it = sorted({item.job for item, _ in outcomes if item.job})
        answers = [
            _judged(outcomes, refused, job, why=why, views=views, progress=progress) for job in jobs_in_it or [""]
        ]
        answer = answers[0][1]
        if jobs_in_it:
            from whichrank.flows.diagnose.several_jobs import together

            answer = together(answers, jobs_in_it, _notes(outcomes))
        if views:
            from whichrank.flows.diagnose.quoted_lines import with_contexts

            answer = with_contexts(answer, intake.items)
    answer = with_wanted(answer, shortened)
    if source is None:
        return answer
    from whichrank.flows.lint.places import explained
    from whichrank.source.excerpts import find_excerpts

    return replace(answer, excerpts=explained(source, find_excerpts(source, answer.verdict.culprits.code)))


def _judged(
    outcomes: Sequence[Outcome],
    refused: Sequence[Source],
    job: str,
    *,
    why: bool,
    views: bool,
    progress: Progress | None = None,
) -> tuple[Case, Diagnosis]:
    """The answer for one job: what files of its own say, and those that are nobody's in particular."""
    sources, records = list(refused), []
    for item, outcome in outcomes:
        if item.job in ("", job):
            found, noted = _sort(item, outcome)
            records += found
            sources += noted
    damaged = frozenset(_damaged(sources))
    case = build_case(records)
    case.damaged_dumps = damaged
    sources = _with_aside(sources, case.set_aside)
    answer = conclude(case, sources, why=why, progress=progress)
    beside = [item for item, outcome in outcomes if item.job in ("", job) and not is_dump(outcome)]
    if beside and _generic(answer):
        from whichrank.flows.diagnose.posted_code import posted_faults
        from whichrank.flows.diagnose.posted_launch import posted_launches

        case.posted = [*posted_launches(beside), *posted_faults(beside)]
        answer = conclude(case, sources, why=why, progress=progress) if case.posted else answer
    texts = [item for item, outcome in outcomes if item.job in ("", job) and is_prose(outcome)]
    if texts and not case.has_dumps and not _watched(outcomes):
        from whichrank.flows.diagnose.odd_hosts import odd_hosts

        case.odd_hosts = odd_hosts(beside, case.people, answer.verdict)
        answer = conclude(case, sources, why=why, progress=progress) if case.odd_hosts else answer
    if answer.verdict.cause in ("healthy", "unknown") and texts:
        from whichrank.flows.diagnose.parted_values import parted_values

        case.parted_values = parted_values(texts, case)
        answer = conclude(case, sources, why=why, progress=progress) if case.parted_values else answer
    if answer.verdict.cause == "unknown" and texts:
        from whichrank.evidence.readers.known_messages import retold

        told = [record for item in texts for record in retold(item)]
        if told:
            case = build_case([*records, *told])
            case.damaged_dumps = damaged
            answer = conclude(case, sources, why=why, progress=progress)
    if answer.verdict.cause == "unknown" and texts and not case.has_dumps and not _watched(outcomes):
        from whichrank.flows.diagnose.unexplained import closest_causes

        case.closest = closest_causes(texts)
        answer = conclude(case, sources, why=why, progress=progress) if case.closest else answer
    if texts and (answer.verdict.category == "hang" or answer.verdict.cause in _ONE_RANK_MAY_TELL):
        from whichrank.flows.diagnose.own_lines import own_lines

        case.own_lines = own_lines(texts, case, answer.verdict)
        answer = conclude(case, sources, why=why, progress=progress) if case.own_lines else answer
    return case, with_views(case, answer) if views else answer


_ONE_RANK_MAY_TELL = ("job-ended-from-outside", "size-mismatch", "nan-origin")
"""Ends of jobs before which a rank may have said what it did otherwise."""


_NOTE = 1 << 14
"""Characters of what somebody asks about a job."""


def _notes(outcomes: Sequence[Outcome]) -> str:
    """What stands in short texts that belong to no job in particular."""
    notes = [item for item, outcome in outcomes if not item.job and item.size <= _NOTE and not is_dump(outcome)]
    return "\n".join(item.head(_NOTE).decode("utf-8", "replace") for item in notes)


def _watched(outcomes: Sequence[Outcome]) -> bool:
    """Whether it is evidence that `whichrank run` took: there, what is not proven is not in words either."""
    return any(item.label.endswith("last_words.json") for item, _ in outcomes)


def _generic(answer: Diagnosis) -> bool:
    """Whether the verdict says at most what the job does, not why."""
    return answer.verdict.cause == "unknown" or causes()[answer.verdict.cause].role == "generic"


def with_views(case: Case, answer: Diagnosis) -> Diagnosis:
    """The answer with what a page draws: the last collectives of the ranks, their stacks merged, what happened when."""
    from whichrank.flows.stacks import of_case
    from whichrank.timeline.collectives.tracks import tracks
    from whichrank.timeline.job_state.happenings import happenings
    from whichrank.timeline.job_state.stack_tree import merged

    who = answer.verdict.culprits
    stacks = merged(of_case(case))
    drawn = tracks(case, answer.ranks, {*who.ranks, *who.candidates})
    return replace(answer, tracks=drawn, stacks=stacks, moments=happenings(case))


def _sort(item: Item, outcome: list[tuple[str, Reading]] | Failure) -> tuple[list[Any], list[Source]]:
    if isinstance(outcome, Failure):
        return [], [Source(item.label, "", "unusable", outcome.message)]
    if not outcome:
        return [], [Source(item.label, "", "ignored", "not a format that whichrank knows")]
    records = [record for _, reading in outcome for record in reading.records]
    return records, [Source(item.label, name, reading.quality, reading.note) for name, reading in outcome]


def _damaged(sources: Iterable[Source]) -> Iterator[int]:
    """The ranks after which flight-recorder dumps are named that could not be read, or not to their end."""
    from whichrank.evidence.readers.flight_recorder.names import rank_from_name

    for source in sources:
        if source.reader == "flight_recorder" and source.quality in ("unusable", "partial"):
            rank = rank_from_name(source.path)
            if rank is not None:
                yield rank


def _with_aside(sources: Iterable[Source], aside: Iterable[Source]) -> list[Source]:
    """What was read but not used is told as such, once."""
    replaced = {source.path: source for source in aside}
    return [
        replaced.get(s.path, s) if s.reader == "flight_recorder" and s.quality != "unusable" else s for s in sources
    ]


def conclude(
    case: Case, sources: Sequence[Source], *, why: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """Judge a case and put the answer together; `why` keeps the hypotheses and the state of the job."""
    rules, known = rules_for(case)
    said, found, clear, skipped = judged(rules, case, progress)
    skipped = sorted([*skipped, *known], key=lambda one: one.code)
    if site.plugins() or site.problems():
        from whichrank.flows.plugins import run as plugins

        more = plugins.judged(case, [*(rule.CODE for rule in rules), *(one.code for one in known)])
        said, found, clear, skipped = said + more[0], found + more[1], clear + more[2], skipped + more[3]
        said = [plugins.with_site_fixes(finding) for finding in said]
        sources = [*sources, *plugins.left_out()]
    findings = [settled(case, joined(case, finding)) for finding in said]
    choice = choose(
        findings,
        looked_at=_looked_at(case, sources),
        silence=_silence(case),
        fit=lambda finding: against(case, finding),
        finished=case.finish.ref if case.finish else None,
        complained=said_category(case),
        working=working.ref if (working := at_work(case)) is not None else None,
        observed=observed(case),
    )
    return Diagnosis(
        verdict=choice.verdict,
        findings=choice.findings,
        consequence_of=choice.consequence_of,
        incidents=choice.incidents,
        next=_next(choice, case),
        job=_job(case, choice),
        ranks=positions.ranks(case),
        groups=positions.groups(case),
        waits=positions.waits(case),
        standings=positions.standings(case),
        differing_values=_differing_values(case, choice),
        hypotheses=_with_phases(case, choice.hypotheses) if why else (),
        phases=_phases(case) if why else (),
        coverage=Coverage(tuple(sources), tuple(found), tuple(clear), tuple(skipped)),
    )


_MOST_VALUES = 4


def _differing_values(case: Case, choice: Choice) -> tuple[DifferingValue, ...]:
    """What is different on the culprits, and on them alone."""
    who = choice.verdict.culprits.ranks
    odd = [each for each in case.odd_values if each.ranks == who] if who and case.variables else []
    return tuple(
        DifferingValue(
            each.name,
            CodePlace(each.frame.file, each.frame.line, each.frame.function, who[0]),
            each.held[who[0]],
            each.usual,
        )
        for each in odd[:_MOST_VALUES]
    )


def _phases(case: Case) -> tuple[PhaseSeen, ...]:
    from whichrank.timeline.job_state.phases import phases

    return phases(case)


def _with_phases(case: Case, hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Each argument with the phase in which its evidence was written."""
    from whichrank.timeline.job_state.phases import WrittenIn

    written = WrittenIn(case)

    def placed(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        return tuple(replace(argument, phase=written.phase(argument.evidence)) for argument in arguments)

    return tuple(
        replace(h, arguments_for=placed(h.arguments_for), arguments_against=placed(h.arguments_against))
        for h in hypotheses
    )


def _silence(case: Case) -> float:
    """How sure it is that nothing is wrong where nothing is found: the collectives of all ranks were seen (whoever is
    not may be in one that the others don't call), and no sign of an end. NCCL's logs say what was called and not what
    came to its end. Or all there is are records of guards, and those were compared."""
    failed = case.events(PeerClosed, GlooTimeout, WatchdogTimeout, ProcessExit, ElasticFailure)
    if failed or (case.stands_still and not case.goes_on):
        return 0.0  # the job did not go on, and nothing said why
    if case.lineup is None:
        guarded = case.guarded is not None and case.guarded.compared > 0 and not case.stacks
        return 0.8 if guarded else 0.0
    if len(case.lineup.dumped) < case.world:
        return 0.0
    return 0.8 if case.has_dumps else 0.65


def _looked_at(case: Case, sources: Sequence[Source]) -> str:
    """What the verdict rests on, in words."""
    parts = []
    if case.lineup is not None:
        dumped, world = len(case.lineup.dumped), case.lineup.world
        what = "flight-recorder dumps" if case.has_dumps else "NCCL logs"
        count = len(case.lineup) + sum(dump.left_out for dump in case.lineup.dumps)
        parts.append(f"the {what} of {dumped} of {world} ranks ({count:,} {'entries' if case.has_dumps else 'calls'})")
    if case.guarded is not None:
        parts.append(f"{case.guarded.compared:,} comparisons of the guards of {len(case.guarded.files)} ranks")
    if case.stacks:
        parts.append(f"the stacks of {len(case.stacks)} ranks")
    if case.log_events:
        parts.append(f"{len(case.log_events)} events of logs")
    if parts:
        return ", ".join(parts)
    read = {source.path for source in sources if source.quality in ("complete", "partial")}
    unusable = {source.path for source in sources if source.quality == "unusable"}
    if unusable and not read:
        return (
            "the file could not be read" if len(unusable) == 1 else f"none of the {len(unusable)} files could be read"
        )
    files = "1 file was read and says" if len(read) == 1 else f"{len(read)} files were read and say"
    return f"{files} nothing about what went wrong" if read else ""


_TELLS_MORE = {
    "crash": NextStep(
        "torchrun --log-dir LOGS --tee 3 …", "the output of every rank holds the error that came first", (), "ends"
    ),
    "slow": NextStep("whichrank profile -- torchrun …", "a profile tells who is late, and with what", (), "load"),
    "corruption": NextStep("whichrank run --guard -- torchrun …", "a guard names the rank and the step", (), "ends"),
}
"""What settles most where nobody knows why, by what the job does."""


def _of_a_hang(case: Case) -> NextStep:
    if case.lineup is None and len(case.stacks) >= max(case.world, 2):
        what = "C++ frames tell who waits for its GPU, who for others, and who computes"
        return NextStep("whichrank stacks --native", what, (), "pauses")
    what = "stacks of all ranks tell where each of them is" if case.lineup is None else "fresh dumps tell more"
    return NextStep("whichrank stacks", what, (), "none")


def _next(choice: Choice, case: Case) -> tuple[NextStep, ...]:
    roots = [f for i, f in enumerate(choice.findings) if i not in choice.consequence_of]
    asked = [step for finding in roots[:1] for step in finding.next]
    if choice.verdict.cause == "unknown":
        asked.append(_TELLS_MORE.get(choice.verdict.category) or _of_a_hang(case))
    meant = choice.verdict.culprits.ranks or choice.verdict.culprits.candidates
    return tuple({step.command: step for step in (filled(step, meant, case) for step in reversed(asked))}.values())[
        ::-1
    ]


def _job(case: Case, choice: Choice) -> JobInfo:
    lineup, scheduler = case.lineup, _scheduled(case)
    if lineup is None:
        return JobInfo(scheduler=scheduler)
    roots = [f for i, f in enumerate(choice.findings) if i not in choice.consequence_of]
    onset = rfc3339_ns(roots[0].onset_ns) if roots and roots[0].onset_ns else None
    libraries = sorted({dump.comm_lib for dump in lineup.dumps if dump.comm_lib})
    return JobInfo(
        world_size=lineup.world,
        backends=tuple(sorted({call.backend for call in lineup.calls if call.backend})),
        nccl=libraries[0] if len(libraries) == 1 else None,
        onset=onset,
        started=rfc3339_ns(int(lineup.created.min())) if not lineup.wrapped else None,
        hosts=tuple(sorted({dump.host for dump in lineup.dumps if dump.host})),
        scheduler=scheduler,
    )


def _scheduled(case: Case) -> ScheduledJob | None:
    """The job as its scheduler knows it; all nodes of one job say the same."""
    event = next(iter(case.events(SchedulerJob)), None)
    if event is None or not event.job:
        return None
    return ScheduledJob(
        kind=event.scheduler,
        id=event.job,
        name=event.name or None,
        step=event.step or None,
        nodes=event.nodes,
        restarts=event.restarts,
        ends=next((text for e in case.events(SchedulerJob) if (text := e.ends)), None),
    )
