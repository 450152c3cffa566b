"""`diagnose` as one page: the answer on the first screen, then the map of the ranks, the stacks and the proof."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from whichrank.model.findings import NextStep, Subject
from whichrank.model.verdict import Diagnosis, RankInfo
from whichrank.model.views import Context
from whichrank.report._outline import DISTURBS, Outline, Point, Section, candidates, link_name, outline
from whichrank.report._words import listed, percent, ranges, shortened
from whichrank.report.html import ranks_over_time
from whichrank.report.html.events_over_hosts import events_over_hosts
from whichrank.report.html.page import filled, page, section, table, text
from whichrank.report.html.rank_map import SCRIPT, rank_map
from whichrank.report.html.stack_tree import stack_tree

NAME = "html"
LONGEST = 2000
"""Characters of any one text; what is quoted can be a line of megabytes."""
SENTENCE, FIXES = 420, 3
OPEN = ("proof", "the code", "the cycle", "it could also be", "also found", "next commands", "hypotheses")
_NOTE = re.compile(r"(.{1,400}\S) \(([a-z][^()]{0,60})\)", re.DOTALL)
TONES = {"healthy": "good", "unknown": "calm", "slow": "warn", "config": "warn"}


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The document."""
    told = outline(diagnosis)
    title = f"{told.label.split(' · ')[0]}: {shortened(told.sentence, 120)}"
    yield from page(title, _parts(diagnosis, told), [SCRIPT, "diagnosis.js"], ["style.css", "diagnosis.css"])


def _parts(diagnosis: Diagnosis, told: Outline) -> Iterator[str]:
    sections = {part.title: part for part in told.sections}
    around = {f"{near.source}, {near.locator}": near for near in diagnosis.contexts}
    yield from _answer(diagnosis, told, sections)
    yield from _map(diagnosis)
    if diagnosis.stacks:
        hint = "Frames that the same ranks share appear once, outermost first; a fork is where ranks part."
        yield section("Stacks of all ranks", stack_tree(diagnosis.stacks), hint=hint)
    elif "where the ranks are" in sections:
        yield _section(sections["where the ranks are"])
    for title in OPEN[:3]:
        if title in sections:
            yield _section(sections[title], around)
    yield events_over_hosts(diagnosis)
    for title in OPEN[3:]:
        if title == "it could also be" and diagnosis.verdict.alternatives:
            yield section(title.capitalize(), _alternatives(diagnosis))
        elif title in sections and (title != "next commands" or len(diagnosis.next) > 1):
            yield _section(sections[title], around)
    if "coverage" in sections:
        items = "".join(f"<li>{_text(point.text)}</li>" for point in sections["coverage"].points)
        yield f"<section><details><summary>Coverage: what was looked at</summary><ul>{items}</ul></details></section>\n"


def _text(words: str) -> str:
    return text(shortened(words, LONGEST))


def _answer(diagnosis: Diagnosis, told: Outline, sections: dict[str, Section]) -> Iterator[str]:
    verdict = diagnosis.verdict
    tone = TONES.get(verdict.category, "bad")
    kind = told.label.split(" · ")
    yield f'<header class="answer {tone}"><p class="kicker"><span class="chip">{_text(kind[0])}</span>'
    cause = verdict.cause if verdict.cause != verdict.category else ""
    yield f"<span>{_text(cause)}</span></p><h1>{text(shortened(told.sentence, SENTENCE))}</h1>"
    facts = [word for word in kind[1:] if word != cause and not word.endswith(" sure")]
    told_of = " · ".join(f"<span>{_text(fact)}</span>" for fact in facts)
    yield f'<p class="label">{told_of}</p></header>\n'
    yield _facts(diagnosis)
    yield f'<div class="act"><section><h2>Fix</h2>{_fix(diagnosis, sections)}</section>\n'
    yield f"<section><h2>Next command</h2>{_command(_next(diagnosis))}</section></div>\n"


def _facts(diagnosis: Diagnosis) -> str:
    """Who, how sure, and who only suffers from it; nothing of that where nothing is wrong."""
    verdict, world = diagnosis.verdict, diagnosis.job.world_size
    if verdict.category == "healthy":
        return ""
    cards = [_fact("Who", _who(diagnosis))]
    if verdict.category != "unknown":
        cards.append(_fact("Confidence", _confidence(verdict.confidence)))
    if world and verdict.victims:
        title = "Waiting, not the cause" if verdict.category in ("hang", "slow") else "Affected, not the cause"
        some = f"{len(verdict.victims):,} of {world:,} ranks"
        cards.append(_fact(title, f'<b>{some}</b><p class="soft">{_text(ranges(verdict.victims, 6))}</p>'))
    return f'<div class="facts">\n{"".join(cards)}</div>\n'


def _fact(title: str, inner: str) -> str:
    return f'<div class="card"><span>{title}</span>{inner}</div>\n'


def _who(diagnosis: Diagnosis) -> str:
    who = diagnosis.verdict.culprits
    known = {info.rank: info for info in diagnosis.ranks}
    if who.ranks:
        name, first = f"rank{'s' if len(who.ranks) > 1 else ''} {ranges(who.ranks, 4)}", known.get(who.ranks[0])
        about = _about(first) if first is not None and len(who.ranks) == 1 else listed(who.hosts, 3)
    elif who.candidates:
        name, _, about = candidates(who.candidates).partition(": ")
    elif who.gpus:
        name, about = f"GPU {who.gpus[0].index} of {who.gpus[0].host}", _more(len(who.gpus))
    elif who.links:
        name, about = link_name(who.links[0]), _more(len(who.links))
    elif who.hosts:
        name, about = listed(who.hosts, 2), ""
    elif who.code:
        name, about = str(who.code[0]), _more(len(who.code))
    else:
        name, about = "not known" if diagnosis.verdict.category == "unknown" else "no rank in particular", ""
    known_as = f'<p class="soft">{_text(about)}</p>' if about else ""
    return f"<b>{_text(name)}</b>{known_as}{_places(who, name)}"


def _places(who: Subject, name: str) -> str:
    """Where the rank is, and the code that it is about: a line that a rank never reached is not where it is."""
    there = next((str(place) for place in who.code if place.rank is not None and place.rank in who.ranks), "")
    code = next((str(place) for place in who.code if place.rank is None), "")
    told = (("at", there), ("code:", code if code != there else ""))
    return "".join(
        f'<p><span class="soft">{word}</span> <code>{_text(place)}</code></p>'
        for word, place in told
        if place and place != name
    )


def _about(info: RankInfo) -> str:
    words = [" ".join(f"{axis}={place}" for axis, place in info.coords.items())]
    words += [f"on {info.host}" if info.host else "", f"GPU {info.gpu}" if info.gpu is not None else ""]
    words += [f"pid {info.pid}" if info.pid is not None else ""]
    return ", ".join(word for word in words if word)


def _more(count: int) -> str:
    return f"and {count - 1:,} more" if count > 1 else ""


def _confidence(value: float) -> str:
    width = max(0.0, min(100.0, 100 * value))
    return f'<b>{percent(value)}</b><div class="meter"><i style="width:{width:.0f}%"></i></div>'


def _fix(diagnosis: Diagnosis, sections: dict[str, Section]) -> str:
    steps = list(diagnosis.verdict.fix)
    now = [point.text for point in sections["what to do"].points] if "what to do" in sections else []
    shown = steps[:FIXES] or now
    if not shown:
        return "<p>Nothing to fix.</p>" if diagnosis.verdict.category == "healthy" else "<p>No fix is known.</p>"
    items = "".join(f"<li>{_text(step)}</li>" for step in shown)
    further = "".join(f"<li>{_text(step)}</li>" for step in steps[FIXES:])
    more = f"<details><summary>{len(steps) - FIXES} more</summary><ul>{further}</ul></details>" if further else ""
    first = "".join(f'<p class="soft">{_text(line)}</p>' for line in now) if steps else ""
    return f"<ol>{items}</ol>{more}{first}"


def _next(diagnosis: Diagnosis) -> NextStep:
    """The command to run next; where the verdict needs nothing more, the one that explains it."""
    if diagnosis.next:
        return diagnosis.next[0]
    own = [finding.code for finding in diagnosis.findings if finding.cause == diagnosis.verdict.cause]
    if own:
        return NextStep(f"whichrank explain {own[0]}", "Explains the cause, how to check it, and how to avoid it")
    return NextStep("whichrank env lint", "Checks the settings of the next start")


def _command(step: NextStep, *, alone: bool = True) -> str:
    """A command to copy; where it stands below one cause, the others that it would settle are left out."""
    settles = f" Settles: {', '.join(step.settles)}." if step.settles and alone else ""
    why = f"{_sentence(step.why)} ({DISTURBS[step.disturbs]}).{settles}"
    return f'{_to_copy(step.command)}<p class="soft">{_text(why)}</p>'


def _to_copy(command: str) -> str:
    """A command with its button; a note behind it ("on the peer") is not copied."""
    found = _NOTE.fullmatch(command)
    words, note = found.groups() if found else (command, "")
    aside = f'<p class="soft">{_text(_sentence(note))}:</p>' if note else ""
    button = '<button type="button" data-copy>Copy</button>'
    return f'{aside}<div class="command"><code>{_text(words)}</code>{button}</div>'


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _map(diagnosis: Diagnosis) -> Iterator[str]:
    inner, hint = "", ""
    rows = ranks_over_time.rows(diagnosis)
    if rows:
        grouped = any(len(track.ranks) > 1 for track in diagnosis.tracks)
        each = "Ranks that did the same are one row" if grouped else "One row per rank"
        hint = (
            f"{each}, with its last collectives on one clock, coloured by process group. What reaches the right edge "
            "has not ended. Hover or tap for the operation; the wheel zooms, dragging moves, 0 shows everything."
        )
        if any(one.end_ns == then.start_ns for track in diagnosis.tracks for one, then in pairwise(track.slices)):
            hint += " Where no end was recorded, as with Gloo, a collective is drawn until the next one begins."
        left = len(diagnosis.tracks) - len(rows)
        more = f'<p class="hint">{left:,} more kinds of behaviour are not drawn.</p>' if left else ""
        inner = rank_map(rows, ranks_over_time.states(diagnosis)) + more
    found = ranks_over_time.kinds(diagnosis)
    if any(kind.tells for kind in found):
        shown = found[: ranks_over_time.MOST_KINDS]
        inner += _kinds(shown)
        if len(found) > len(shown):
            inner += f'<p class="hint">and {len(found) - len(shown):,} more groups (in the JSON)</p>'
    if inner:
        yield section("Ranks over time" if rows else "Where the ranks are", inner, hint=hint)


def _kinds(found: Sequence[ranks_over_time.Kind]) -> str:
    """The same as the map in words, for readers that can't see it."""
    headings = ["count", "ranks", "state", "last operation", "waits for", "host", "coordinates"]
    known = any(kind.state != "unknown" for kind in found)
    cells = [
        [
            f"{len(kind.ranks):,}", ranges(kind.ranks, 6) + (" ← the verdict" if kind.named else ""),
            kind.state if known else "–", kind.at or "–", kind.waits_for or "–", kind.hosts or "–", kind.coords or "–",
        ]
        for kind in found
    ]  # fmt: skip
    rows = [[shortened(cell, 200) for cell in row] for row in cells]
    title = "<h3>Who waits where</h3>" if any(kind.waits_for for kind in found) else ""
    return f'{title}<div class="kinds">{table(*filled(headings, rows), range(1, 7))}</div>'


def _alternatives(diagnosis: Diagnosis) -> str:
    """What else it could be, and what would settle each."""
    items = []
    for other in diagnosis.verdict.alternatives:
        steps = [step for step in diagnosis.next if other.cause in step.settles]
        explain = NextStep(f"whichrank explain {other.cause}", "Says how to tell it from others")
        settled = "".join(_command(step, alone=False) for step in (steps or [explain])[:2])
        told = f"{percent(other.confidence)} {other.cause}: {other.why}"
        items.append(f'<li><p>{_text(told)}</p><p class="soft">What would settle it:</p>{settled}</li>')
    return f'<ul class="plain">{"".join(items)}</ul>'


def _section(part: Section, around: Mapping[str, Context] | None = None) -> str:
    if part.title == "next commands":
        points = "".join(f"<li>{_copied(point)}</li>" for point in part.points)
        return section("All next commands", f'<ul class="plain">{points}</ul>')
    tag = "ol" if part.numbered and len(part.points) > 1 else "ul"
    css = "" if tag == "ol" else ' class="plain"'
    items = "".join(f"<li>{_point(point, around or {})}</li>" for point in part.points)
    return section(part.title.capitalize(), f"<{tag}{css}>{items}</{tag}>")


def _copied(point: Point) -> str:
    commands = "".join(map(_to_copy, point.verbatim))
    return f'{commands}<p class="soft">{_text(_sentence(point.text))}</p>'


def _point(point: Point, around: Mapping[str, Context]) -> str:
    details = "".join(f'<p class="soft">{_text(line)}</p>' for line in point.details)
    lines = "\n".join(_text(line) for line in point.verbatim)
    quote = f'<pre tabindex="0">{lines}</pre>' if lines else ""
    near = around.get(point.text.partition(" (")[0])
    if near is not None and point.verbatim:
        quote = _in_context(near, point.verbatim, quote)
    inner = "".join(f"<li>{_point(one, around)}</li>" for one in point.inner)
    return f"<p>{_text(point.text)}</p>{details}{quote}" + (f'<ul class="quotes">{inner}</ul>' if inner else "")


def _in_context(near: Context, quoted: Sequence[str], quote: str) -> str:
    """One quoted line among its neighbours; a longer quote, or part of a line, with the lines around it below."""
    target = dict(near.lines).get(near.line, "")
    around = f'<pre tabindex="0">{_numbered(near)}</pre>'
    if len(quoted) == 1 and quoted[0].strip()[:60] in target:
        return around
    return f"{quote}<details><summary>around line {near.line}</summary>{around}</details>"


def _numbered(near: Context) -> str:
    """The quoted line in bold among its neighbours."""
    shown = [(number, _text(line)) for number, line in near.lines]
    return "\n".join(
        f"<b>{number:>6}  {line}</b>" if number == near.line else f'<span class="soft">{number:>6}  {line}</span>'
        for number, line in shown
    )
