"""From findings to one verdict: the root first, its consequences behind it, other faults beside it.

Several rules often see the same fault from different sides: the dumps say that rank 5 did not come, its stack says
that it reads from storage, the launcher says that it was killed at the end. The root is the finding that explains
most and says most: an explicit cause beats one that only says "it did not come", and what began first beats what
followed. Findings of the same cause about the same ranks are one hypothesis: it is as sure as the best of them, and a
little surer for every other kind of evidence. A finding that contradicts the state of the job is out. The order of the
findings does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model import grades
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Category, Finding, Grade, Subject
from whichrank.model.verdict import Argument, Hypothesis, Verdict

_URGENCY = {"hang": 0.0, "crash": 0.0, "corruption": 0.15, "config": 0.3, "slow": 0.3}
_SEVERITY = {"error": 0.0, "warning": 0.5, "info": 2.0}
_SEEN_AS = {"corruption": "matter of wrong results", "slow": "matter of speed"}
MAX_ALTERNATIVES = 3
# Two faults are told apart in time when they are this far apart: log stamps are good to a second, clocks differ.
APART_NS = 3_000_000_000
_STOPPED = ("hang", "crash")
_LATE = ("straggler", "input-bound")
"""What measurements say of a rank that is late; why, other evidence may say."""
_NEARLY = 0.25
"""An explicit cause that began earlier wins if it is not less sure than the best by more than this."""
_LISTED = 0.3
"""What the causes share that are only listed, where nothing was found."""

Fit = Callable[[Finding], Argument | None]


class Choice(Struct):
    """The verdict, and how the findings hang together."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    consequence_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    incidents: tuple[Verdict, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()


def choose(
    findings: Sequence[Finding],
    *,
    looked_at: str,
    silence: float,
    fit: Fit | None = None,
    finished: Ref | None = None,
    complained: Category | None = None,
    working: Ref | None = None,
    observed: Category | None = None,
) -> Choice:
    """One verdict. `looked_at` says what "healthy" may be said of, and `silence` how sure that is where
    nothing speaks against it: 0 makes silence unknown.

    `fit` says what the state of the job has against a finding, `finished` where the run says that it ended well,
    `complained` what a person says of it, `working` where its output ends in the midst of work, and `observed` what
    the job was seen to do where nothing says why."""
    given = sorted(findings, key=_order)
    refuted = {i: argument for i, f in enumerate(given) if fit is not None and (argument := fit(f)) is not None}
    standing = [replace(f, severity="info") if i in refuted else f for i, f in enumerate(given)]
    weighed = _hypotheses(given, refuted)
    telling = _Weighed(finding for finding in standing if finding.severity != "info")
    if not telling:
        if finished is not None:
            verdict = _survived(finished, complained)
        elif working is not None and observed is None:
            verdict = _goes_on(working)
        else:
            verdict = _nothing_found(looked_at, silence, standing, observed)
        return Choice(verdict, tuple(standing), hypotheses=weighed)
    best = telling.root()
    sure, root = telling.sure(best), _placed(best, telling)
    if observed == "hang" and (_says_why_late(root) or _keeps_from_meeting(root)):
        root = replace(root, category="hang")  # so late that the others gave up, or they still wait for each other
    rest = [f for f in standing if f is not best]
    followers = {i: (0,) for i, f in enumerate(rest, 1) if _follows(f, root)}
    readings = [rest[i - 1] for i in followers]
    others = [f for i, f in enumerate(rest, 1) if i not in followers and f.severity != "info"]
    incidents = tuple(_verdict(f, telling.sure(f), []) for f in others)
    return Choice(_verdict(root, sure, readings), (root, *rest), dict(followers), incidents, weighed)


class _Weighed(tuple[Finding, ...]):
    """Findings that may be the root, each as sure as its hypothesis."""

    __slots__ = ()

    def sure(self, finding: Finding) -> float:
        """How sure it is, with all other kinds of evidence that say the same."""
        kinds = {other.kind for other in self if _same(other, finding)}
        return grades.raised(finding.confidence, len(kinds - {finding.kind}))

    def weight(self, finding: Finding) -> float:
        """How much a finding has to say as the root of everything."""
        return _weight(finding, self.sure(finding))

    def order(self, finding: Finding) -> tuple[object, ...]:
        """The weightiest first; of equal ones the one that names a rank, then anybody, then as everywhere."""
        return (-self.weight(finding), not finding.subject.ranks, not _names(finding), *_order(finding))

    def root(self) -> Finding:
        """The weightiest finding, unless an explicit cause began clearly earlier, or one says more about the same."""
        best = min(self, key=self.order)
        if best.onset_ns is not None:
            near = self.weight(best) - _NEARLY
            earlier = [f for f in self if _began_before(f, best) and self.weight(f) > near]
            if earlier:
                best = min(earlier, key=lambda f: (f.onset_ns, *self.order(f)))
        best = min((f for f in self if _says_more(f, best)), key=self.order, default=best)
        if _is_guess_about_nobody(best):
            best = min((f for f in self if _made_others_wait(f)), key=self.order, default=best)
        if best.cause in _LATE or _is_end_of_all(best) or _gave_up_slow(best):
            found = (best,) if best.cause in _LATE else (f for f in self if f.cause in _LATE)
            late = {f.subject.ranks for f in found if f.subject.ranks}
            why = (f for f in self if _says_why_late(f))
            there = {f.subject.hosts for f in self if f.subject.ranks in late}
            fitting = [f for f in why if _is_why(f, late, there) or (not late and _explains_slowness(f, best))]
            hangs = [f for f in self if _is_end_of_all(best) and _was_seen_to_hang(f)]
            best = min(fitting or hangs, key=self.order, default=best)
        if _names(best):
            return best
        same = (f for f in self if _same(f, best) and _names(f) and f.grade >= Grade.SUPPORTS)
        return min(same, key=self.order, default=best)


def _weight(finding: Finding, sure: float) -> float:
    less = causes()[finding.cause].yields if finding.cause in causes() else 0.0
    return round(sure - less - _URGENCY.get(finding.category, 0.5) - _SEVERITY[finding.severity], 6)


def _order(finding: Finding) -> tuple[object, ...]:
    """A total order: the weightiest first; ties by what began first, then by name."""
    onset = finding.onset_ns if finding.onset_ns is not None else 1 << 63
    weight = _weight(finding, finding.confidence)
    return (-weight, onset, finding.code, finding.cause, finding.subject.ranks, finding.message)


def _same(one: Finding, other: Finding) -> bool:
    """Whether two findings are about one hypothesis: who names nobody contradicts nobody."""
    mine, theirs = one.subject.ranks, other.subject.ranks
    return (one.cause, one.category) == (other.cause, other.category) and (not mine or not theirs or mine == theirs)


def _says_more(finding: Finding, best: Finding) -> bool:
    """Whether the best one defers to this: by its cause, to one that is as well supported, about the same ranks. The
    end of a whole job explains nothing; that of some of its hosts does."""
    mine, theirs = set(finding.subject.ranks), set(best.subject.ranks)
    deferred = best.cause in causes() and finding.cause in causes()[best.cause].defers_to
    deferred = deferred and (_is_explicit(finding) or _names(finding))
    return deferred and finding.grade >= best.grade and (not mine or not theirs or bool(mine & theirs))


def _is_explicit(finding: Finding) -> bool:
    return finding.cause not in causes() or causes()[finding.cause].role not in ("generic", "ending")


def _is_end_of_all(finding: Finding) -> bool:
    """Whether somebody ended the whole job: where one rank was late and something says why, for that reason."""
    return finding.cause in causes() and causes()[finding.cause].role == "ending" and not _names(finding)


def _was_seen_to_hang(finding: Finding) -> bool:
    """Whether somebody looked at the ranks and one of them held up the others: that is why the job was ended."""
    return finding.category == "hang" and finding.kind in ("stacks", "records") and bool(finding.subject.ranks)


def _is_guess_about_nobody(finding: Finding) -> bool:
    return finding.category == "hang" and finding.grade is Grade.HINTS and not _names(finding)


def _made_others_wait(finding: Finding) -> bool:
    """Whether it names who is so much later than the others that they may have timed out for it."""
    drastic = finding.category == "slow" and finding.severity == "error"
    return drastic and finding.grade >= Grade.SUPPORTS and bool(finding.subject.ranks)


def _gave_up_slow(finding: Finding) -> bool:
    """Whether the program, or who watches it, ended the job because it was slow."""
    return finding.cause == "rank-exception" and finding.category == "slow"


def _is_why(finding: Finding, late: set[tuple[int, ...]], there: set[tuple[str, ...]]) -> bool:
    """Whether it is about the ranks that are late, or where it knows no ranks about their host."""
    mine = finding.subject
    return late == {mine.ranks} or (bool(late and mine.hosts) and not mine.ranks and there == {mine.hosts})


def _explains_slowness(finding: Finding, best: Finding) -> bool:
    """Whether it says why a job was slow of which somebody says so."""
    complained = _gave_up_slow(best) or finding.severity == "error"
    return complained and finding.category == "slow" and finding.grade >= Grade.SUPPORTS


def _names(finding: Finding) -> bool:
    subject = finding.subject
    return bool(subject.ranks or subject.hosts or subject.gpus or subject.links)


def _began_before(finding: Finding, best: Finding) -> bool:
    if finding.onset_ns is None or best.onset_ns is None or not _is_explicit(finding) or finding.grade < Grade.SUPPORTS:
        return False
    return best.onset_ns - finding.onset_ns > APART_NS


def _keeps_from_meeting(finding: Finding) -> bool:
    """Whether processes can't come together for it: what they print on the way is no end."""
    return finding.category == "crash" and finding.cause in causes() and causes()[finding.cause].phase == "launch"


def _says_why_late(finding: Finding) -> bool:
    """Also by a hint: that the same ranks are late, and nobody else, bears it out."""
    return finding.cause in causes() and causes()[finding.cause].role == "why-late" and finding.grade >= Grade.HINTS


def _follows(finding: Finding, root: Finding) -> bool:
    """Another reading of the same fault, its end, or what it did to its victims."""
    if not _is_explicit(finding):
        return True
    mine, theirs = set(finding.subject.ranks), set(root.subject.ranks)
    if finding.category == "config":
        return False
    if finding.category == "slow":
        return mine <= theirs | set(root.victims)
    later = finding.onset_ns is None or root.onset_ns is None or finding.onset_ns >= root.onset_ns - APART_NS
    return bool(mine & theirs) or not mine or (later and mine <= set(root.victims))


def _placed(root: Finding, others: Sequence[Finding]) -> Finding:
    """The root with the ranks in which it shows, where it names nobody and all that shows it names the same."""
    if root.subject.ranks:
        return _housed(root, others)
    if root.subject.candidates or root.cause not in causes():
        return root
    telling = [f for f in others if f.subject.ranks and f.grade >= Grade.SUPPORTS]
    shows = [f for f in telling if _shows(f, root) or f.cause == root.cause]
    if len({f.subject.ranks for f in shows}) != 1:
        return root
    there = shows[0].subject
    return replace(root, subject=replace(root.subject, ranks=there.ranks, hosts=root.subject.hosts or there.hosts))


def _housed(root: Finding, others: Sequence[Finding]) -> Finding:
    """The root with the hosts that others name for the same cause and ranks, where it names none and they agree."""
    same = (f for f in others if (f.cause, f.subject.ranks) == (root.cause, root.subject.ranks))
    hosts = {f.subject.hosts for f in same if f.subject.hosts and f.grade >= Grade.SUPPORTS}
    if root.subject.hosts or len(hosts) != 1:
        return root
    return replace(root, subject=replace(root.subject, hosts=hosts.pop()))


def _shows(finding: Finding, root: Finding) -> bool:
    """A fault of a GPU shows in the one rank whose kernels fail, what slows one down in the rank that is late, what
    holds one up in the rank that did not come, a name that does not resolve in those that fall back to loopback."""
    family = causes()[root.cause].family
    of_kernels = finding.cause in causes() and causes()[finding.cause].family == "cuda-fault"
    failed = family == "gpu-hardware" and of_kernels and len(finding.subject.ranks) == 1
    unresolved = (root.cause, finding.cause) == ("hostname-resolution", "wrong-interface")
    held_up = family == "slow-rank" and finding.cause == "collective-desync"
    return failed or unresolved or held_up or (root.category == "slow" and finding.cause in _LATE)


def _verdict(root: Finding, sure: float, readings: Sequence[Finding]) -> Verdict:
    return Verdict(
        category=root.category,
        cause=root.cause,
        culprits=root.subject,
        victims=tuple(sorted(root.victims)),
        confidence=sure,
        summary=root.message,
        fix=root.fix,
        alternatives=_alternatives(root, sure, readings),
        certificate=root.certificate,
    )


def _alternatives(root: Finding, sure: float, readings: Sequence[Finding]) -> tuple[Alternative, ...]:
    """What else was found, the surest first, then what the rule itself lists."""
    seen = sorted((f for f in readings if _is_explicit(f) and f.severity != "info"), key=lambda f: -f.confidence)
    offered = [*(Alternative(f.cause, f.message) for f in seen), *root.alternatives]
    return _shared([other for other in offered if other.cause != root.cause], 1.0 - sure)


def _shared(offered: Sequence[Alternative], left: float) -> tuple[Alternative, ...]:
    """At most three of them: each takes half of what is left, and one percent at least."""
    unique = {other.cause: other for other in reversed(offered)}
    percent, shared = math.floor(round(100 * left, 6)), []
    for other in sorted(unique.values(), key=offered.index)[:MAX_ALTERNATIVES]:
        if percent < 1:
            break
        share = max(percent // 2, 1)
        percent -= share
        shared.append(replace(other, confidence=share / 100))
    return tuple(shared)


def _survived(finished: Ref, complained: Category | None) -> Verdict:
    """A run that ended well, whatever it printed on the way; less surely where somebody says that it does not run."""
    said = finished.quote.strip()[:120]
    if complained in _STOPPED:
        summary = f"This run finished (“{said}”), but a report mentions a {complained}; it may be about another run."
        return Verdict("healthy", "healthy", Subject(), (), 0.6, summary)
    summary = f"The run finished (“{said}”); what failed on the way was caught, retried or harmless."
    return Verdict("healthy", "healthy", Subject(), (), 0.85, summary)


def _goes_on(working: Ref) -> Verdict:
    """Output that ends in the midst of work, with nothing wrong behind."""
    said = working.quote.strip()[:120]
    summary = f"The job was at work when its output ended (“{said}”), and nothing in it says that it failed."
    return Verdict("healthy", "healthy", Subject(), (), 0.65, summary)


def _nothing_found(looked_at: str, silence: float, noted: Sequence[Finding], observed: Category | None) -> Verdict:
    if silence and observed is None:
        return Verdict("healthy", "healthy", Subject(), (), silence, f"Nothing wrong found in {looked_at}.")
    told = (
        f"Not enough evidence to say anything: {looked_at}."
        if looked_at
        else "Nothing that whichrank can read was found."
    )
    # What was only noted accuses nobody, but it is where to look first.
    named = [Alternative(f.cause, f.message) for f in sorted(noted, key=_order) if f.cause != "unknown"]
    possible = [*named, *(a for f in noted for a in f.alternatives)]
    if observed is not None:
        told = f"The evidence says that it is a {_SEEN_AS.get(observed, observed)}, and not why."
    return Verdict(observed or "unknown", "unknown", Subject(), (), 0.0, told, alternatives=_shared(possible, _LISTED))


def _hypotheses(findings: Sequence[Finding], refuted: dict[int, Argument]) -> tuple[Hypothesis, ...]:
    """Findings of the same cause and ranks as one hypothesis, those that stand first."""
    piles: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for i, finding in enumerate(findings):
        piles.setdefault((finding.cause, finding.subject.ranks), []).append(i)
    standing = _Weighed(finding for i, finding in enumerate(findings) if i not in refuted)
    found = []
    for (cause, ranks), members in piles.items():
        speaking = tuple(_argument(findings[i]) for i in members)
        contrary = tuple(dict.fromkeys(refuted[i] for i in members if i in refuted))
        sure = max((standing.sure(findings[i]) for i in members if i not in refuted), default=0.0)
        found.append(Hypothesis(cause, ranks, sure, speaking, contrary))
    return tuple(sorted(found, key=lambda h: bool(h.arguments_against)))


def _argument(finding: Finding) -> Argument:
    return Argument(finding.code, finding.grade, finding.kind, finding.message, finding.evidence[:2])
