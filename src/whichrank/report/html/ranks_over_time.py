"""What the ranks of a diagnosis did last, as rows of the map, and who stands where as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from whichrank.model.verdict import Diagnosis, Position, RankInfo, Wait
from whichrank.model.views import Slice, Track
from whichrank.report._words import counted, listed, ranges, shortened
from whichrank.report.html.rank_map import Row, State

BETWEEN, WAITING, CULPRIT, UNKNOWN, OTHER = range(5)
STATES = (
    State("between collectives", "--other"),
    State("waits", "--wait"),
    State("named by the verdict", "--exposed"),
    State("nothing known", "--host"),
    State("in other groups", "--sync"),
)
COLOURS = ("--compute", "--overlap", "--memory", "--loader")
"""Of the process groups that most collectives belong to."""
MOST_ROWS, MOST_KINDS = 400, 60
MOST_CHARACTERS = 800_000
"""Of all that the rows say: a page of thousands of ranks that all did something else stays below 2 MB."""


def states(diagnosis: Diagnosis) -> list[State]:
    """What the map's colours mean: the group of a collective, or how a rank stands."""
    groups = _groups(diagnosis)
    return [
        *STATES,
        *(State(f"in {shortened(name, 40) or 'an unnamed group'}", COLOURS[i]) for i, name in enumerate(groups)),
    ]


def _groups(diagnosis: Diagnosis) -> list[str]:
    """The groups that have a colour of their own."""
    count = Counter(one.group for track in diagnosis.tracks[:MOST_ROWS] for one in track.slices)
    return sorted(name for name, _ in count.most_common(len(COLOURS)))


def rows(diagnosis: Diagnosis) -> list[Row]:
    """One row per track; the last state of each reaches to the edge of the map."""
    colour = {name: len(STATES) + i for i, name in enumerate(_groups(diagnosis))}
    times = [t for track in diagnosis.tracks for s in track.slices for t in (s.start_ns, s.end_ns) if t is not None]
    if not times:
        return []
    begin, last = min(times), max(times)
    edge = last + max((last - begin) // 5, 1_000)
    waits = _waits(diagnosis)
    known = {info.rank: info for info in diagnosis.ranks}
    drawn = (_row(track, diagnosis, waits, colour, (begin, edge), known) for track in diagnosis.tracks[:MOST_ROWS])
    return list(_within(drawn, MOST_CHARACTERS))


def _within(rows: Iterable[Row], characters: int) -> Iterator[Row]:
    """The rows whose words fit on the page; those that the verdict names always do."""
    said: set[str] = set()
    for row in rows:
        new = set(row.words) - said
        characters -= sum(map(len, new))
        if characters > 0 or row.flag:
            said |= new
            yield row


def _row(
    track: Track,
    diagnosis: Diagnosis,
    waits: dict[int, Wait],
    colour: dict[str, int],
    span: tuple[int, int],
    known: dict[int, RankInfo],
) -> Row:
    begin, edge = span
    who = diagnosis.verdict.culprits
    first = track.ranks[0]
    flag = "culprit" if first in who.ranks else "suspect" if first in who.candidates else ""
    label = f"rank {first}" if len(track.ranks) == 1 else counted(len(track.ranks), "rank")
    points = list(_points(track.slices, colour, begin, edge)) or [(0, UNKNOWN, "no record of this rank's collectives")]
    at, state, word = points[-1]
    wait = waits.get(first)
    if flag:
        points[-1] = (at, CULPRIT, word)
    elif wait is not None and state != UNKNOWN:
        points[-1] = (at, WAITING, f"{word}, waits for {_ranks(wait.waits_for)}" if wait.waits_for else word)
    if len(track.ranks) > 1:
        points = [(at, state, f"{word} [ranks {ranges(track.ranks)}]") for at, state, word in points]
    infos = [known[rank] for rank in track.ranks if rank in known]
    shared = _shared(infos)
    if len(track.ranks) > 1:
        coords = " ".join(f"{axis}={place}" for axis, place in shared.items() if axis != "host")
        some, and_more, _ = ranges(track.ranks, 1).partition(" and ")
        label += f" · {coords or some + (', …' if and_more else '')}"
    return Row(
        label,
        [*(at / 1000 for at, _, _ in points), (edge - begin) / 1000],
        [*(state for _, state, _ in points), points[-1][1]],
        flag=flag,
        words=[*(word for _, _, word in points), ""],
        keys={"rank": first, **shared},
    )


def _points(slices: Sequence[Slice], colour: dict[str, int], begin: int, edge: int) -> Iterator[tuple[int, int, str]]:
    """Where the state changes: (nanoseconds from the beginning, state, what to say of it)."""
    for index, one in enumerate(slices):
        following = slices[index + 1].start_ns if index + 1 < len(slices) else edge
        start = max(one.start_ns, slices[index - 1].start_ns if index else one.start_ns)
        place = f" at {one.place}" if one.place else ""
        yield (
            start - begin,
            colour.get(one.group, OTHER),
            f"{one.op} {one.seq} of {one.group or 'an unnamed group'}{place}",
        )
        if one.end_ns is not None and one.end_ns < following:
            yield max(one.end_ns, start) - begin, BETWEEN, f"between collectives, after {one.op} {one.seq}"


def _waits(diagnosis: Diagnosis) -> dict[int, Wait]:
    """The first wait of every rank. A diagnosis lists them for some thousand ranks only: who stands in the same
    operation as those waits for the same ranks, as far as all that are listed agree."""
    told = {wait.rank: wait for wait in reversed(diagnosis.waits)}
    alike: dict[Position, Wait | None] = {}
    for wait in told.values():
        place = Position(wait.group, wait.seq, wait.op)
        same = alike.setdefault(place, wait)
        if same is not None and same.waits_for != wait.waits_for:
            alike[place] = None
    for info in diagnosis.ranks:
        if info.rank not in told and info.state == "waiting" and info.at is not None:
            same = alike.get(info.at)
            if same is not None and info.rank not in same.waits_for:
                told[info.rank] = same
    return told


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks, 6)}"


class Kind(Struct, frozen=True):
    """Ranks that stand at the same place in the same state."""

    ranks: tuple[int, ...]
    state: str
    at: str
    waits_for: str
    hosts: str
    coords: str
    named: bool

    @property
    def tells(self) -> bool:
        """Whether anything but the rank's number is known."""
        return self.state != "unknown" or bool(self.at or self.waits_for or self.hosts or self.coords)


def kinds(diagnosis: Diagnosis) -> list[Kind]:
    """Who stands where: the named ranks first, then the largest groups."""
    names = {group.id: group.desc or group.name for group in diagnosis.groups}
    waits = _waits(diagnosis)
    who = {*diagnosis.verdict.culprits.ranks, *diagnosis.verdict.culprits.candidates}
    together: dict[tuple[str, str, str, bool], list[RankInfo]] = {}
    for info in diagnosis.ranks:
        at = info.at
        place = "" if at is None else f"{at.op} {at.seq} of {names.get(at.group, at.group)}"
        wait = waits.get(info.rank)
        # A rank does not wait for itself: members of one wait differ only in the rank that they leave out.
        missing = _ranks(wait.waits_for) if wait is not None and wait.waits_for else ""
        together.setdefault((info.state, place, missing, info.rank in who), []).append(info)
    found = [
        Kind(
            tuple(info.rank for info in infos), state, place, missing,
            _hosts(infos), _coordinates(infos), named,
        )
        for (state, place, missing, named), infos in together.items()
    ]  # fmt: skip
    return sorted(found, key=lambda kind: (not kind.named, -len(kind.ranks), kind.ranks))


def _hosts(infos: Iterable[RankInfo]) -> str:
    hosts = list(dict.fromkeys(info.host for info in infos if info.host))
    return listed(hosts, 2)


def _coordinates(infos: Sequence[RankInfo]) -> str:
    """The coordinates that all of them share."""
    return " ".join(f"{axis}={place}" for axis, place in _shared(infos).items() if axis != "host")


def _shared(infos: Sequence[RankInfo]) -> dict[str, int | str]:
    """Host and coordinates that all of them have in common."""
    if not infos:
        return {}
    host = {"host": infos[0].host} if infos[0].host and all(info.host == infos[0].host for info in infos) else {}
    shared = dict(infos[0].coords)
    for info in infos[1:]:
        shared = {axis: place for axis, place in shared.items() if info.coords.get(axis) == place}
    return {**host, **shared}
