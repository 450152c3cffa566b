"""Who stands out in values that were measured for each rank or host: later, slower, or with another checksum."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.records.rank_values import Member, Quantity, RankValue, RankValues

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_LEAST_MEMBERS = 3
_APART = 1.15
"""Who is slow needs this many times what the typical one needs."""
_CLEAR = 4.0
"""… and stands this many times as far off as the others lie apart."""
_LATELY, _LEAST_LATELY = 3, 5
"""Who became slow is so in the last third of the measurements, of which there are so many at least…"""
_APART_LATELY = 1.5
"""… and needs this many times what the typical one needs: fewer measurements scatter more."""
_NOISE = 0.02
_TIMES, _SHORTEST_MS = ("data", "work", "step"), 20.0
"""Of times that most ranks print as nothing, this long at least is told from nothing."""
_SHORTER_WAIT, _LEAST_WAITS = 0.6, 3
_AS_MUCH = 0.8
_FEW = 0.25
"""More than this share of all are not the odd ones, unless they are one host of several."""


class Outlier(Struct, frozen=True):
    """Members whose median of one quantity is far from the typical one."""

    name: str
    quantity: Quantity
    members: tuple[Member, ...]
    theirs: float
    typical: float
    times: int
    """Measurements of each."""
    refs: tuple[Ref, ...]

    def told(self) -> str:
        """`3.2 times that of`; the lines quoted beside it have the values with their units."""
        if self.typical <= 0:
            return f"{self.theirs:g} against {self.typical:g} of"
        return f"{self.theirs / self.typical:.3g} times that of"


class Split(Struct, frozen=True):
    """Replicas whose checksums differ from the first such step on; `members` is the minority, empty without one."""

    name: str
    step: int
    members: tuple[Member, ...]
    agreed_before: bool
    agreed_after: bool
    refs: tuple[Ref, ...]


class _Told(Struct, frozen=True):
    """A cell and the file that it stands in."""

    source: str
    cell: RankValue


def slow(values: Iterable[RankValues], hosts: Mapping[int, str]) -> list[Outlier]:
    """Who needs more time or gives less, by every quantity that tells; who waits least is late as well. Where nobody
    did from the start, who does in the end."""
    found = []
    for cells in _by_name(values):
        if cells[0].cell.quantity != "checksum":
            by_member = _by_member(cells)
            lately = {member: told[-(len(told) // _LATELY) :] for member, told in by_member.items()}
            outlier = _outlier(by_member, hosts, _APART)
            if outlier is None and min(map(len, lately.values())) >= _LEAST_LATELY:
                outlier = _outlier(lately, hosts, _APART_LATELY)
            found += [outlier] if outlier is not None else []
    return found


def _outlier(by_member: Mapping[Member, Sequence[_Told]], hosts: Mapping[int, str], apart: float) -> Outlier | None:
    first = next(iter(by_member.values()))[0].cell
    medians = _medians(by_member)
    odd = _odd(medians, first.quantity, hosts, apart) or _odd_host(medians, first.quantity, hosts)
    if not odd:
        return None
    rest = [member for member in medians if member not in odd]
    refs = tuple(_ref(_most_like(by_member[member], medians[member])) for member in (odd[0], rest[0]))
    theirs, typical = median(medians[m] for m in odd), median(medians[m] for m in rest)
    times = min(len(by_member[member]) for member in odd)
    if first.quantity == "wait" and times < _LEAST_WAITS and len(by_member) < len(hosts):
        return None  # who waits less than others now and then was not counted when it did not wait at all
    return Outlier(first.name, first.quantity, odd, theirs, typical, times, refs)


def _most_like(told: Sequence[_Told], usual: float) -> _Told:
    """The newest of those that come closest to what is usual."""
    return min(reversed(told), key=lambda one: abs(one.cell.value - usual))


def waits_less(values: Iterable[RankValues], members: Sequence[Member]) -> bool:
    """Whether these wait less for the others than the others do, wherever that was measured: who is late does."""
    for cells in _by_name(values):
        medians = _medians(_by_member(cells)) if cells[0].cell.quantity == "wait" else {}
        theirs = [medians[member] for member in members if member in medians]
        rest = [value for member, value in medians.items() if member not in members]
        if len(rest) >= _LEAST_MEMBERS - 1 and theirs and median(theirs) > median(rest):
            return False
    return True


def own_wait(values: Iterable[RankValues], members: Sequence[Member]) -> float:
    """How long these wait for the others themselves, wherever that is longest."""
    waits = (_medians(_by_member(cells)) for cells in _by_name(values) if cells[0].cell.quantity == "wait")
    return max((medians[member] for medians in waits for member in members if member in medians), default=0.0)


def _by_member(cells: Iterable[_Told]) -> dict[Member, list[_Told]]:
    found: dict[Member, list[_Told]] = defaultdict(list)
    for told in cells:
        found[told.cell.member].append(told)
    return found


def _medians(by_member: Mapping[Member, Sequence[_Told]]) -> dict[Member, float]:
    return {member: median(told.cell.value for told in mine) for member, mine in by_member.items()}


def _odd(
    medians: Mapping[Member, float], quantity: Quantity, hosts: Mapping[int, str], apart: float
) -> tuple[Member, ...]:
    if len(medians) < _LEAST_MEMBERS:
        return ()
    typical = median(medians.values())
    if typical <= 0 and quantity in _TIMES:
        typical = _SHORTEST_MS
    if typical <= 0:
        return ()
    less = quantity in ("wait", "rate")
    bound = typical * (_SHORTER_WAIT if quantity == "wait" else 1 / apart if quantity == "rate" else apart)
    odd = [m for m, value in medians.items() if (value < bound if less else value > bound)]
    rest = [value for member, value in medians.items() if member not in odd]
    if not odd or not rest or not (len(odd) <= max(1, _FEW * len(medians)) or _one_host(odd, medians, hosts)):
        return ()
    spread = max(max(rest) - typical, typical - min(rest), _NOISE * typical)
    nearest = max(medians[m] for m in odd) if less else min(medians[m] for m in odd)
    return tuple(odd) if abs(nearest - typical) > _CLEAR * spread or quantity == "wait" else ()


def _odd_host(medians: Mapping[Member, float], quantity: Quantity, hosts: Mapping[int, str]) -> tuple[Member, ...]:
    """The members of the one host of which all are slower by far than all others: of two hosts each has half of them,
    and nobody is typical."""
    if quantity not in ("data", "work", "step"):
        return ()
    by_host: dict[str, list[Member]] = defaultdict(list)
    for member in medians:
        if (host := _host_of(member, hosts)) is None:
            return ()
        by_host[host].append(member)
    if len(by_host) < 2 or min(map(len, by_host.values())) < 2:
        return ()
    ordered = sorted(by_host.values(), key=lambda members: min(medians[m] for m in members))
    slowest, rest = ordered[-1], [medians[m] for members in ordered[:-1] for m in members]
    nearest, typical = min(medians[m] for m in slowest), max(median(rest), _SHORTEST_MS)
    spread = max(max(rest) - min(rest), _NOISE * typical)
    far = nearest > _APART_LATELY * typical and nearest - typical > _CLEAR * spread
    return tuple(slowest) if far else ()


def _host_of(member: Member, hosts: Mapping[int, str]) -> str | None:
    return member.host or (hosts.get(member.ranks[0]) if member.ranks else None)


def _one_host(odd: Sequence[Member], all_of: Iterable[Member], hosts: Mapping[int, str]) -> bool:
    """Whether these are the members of one host, and no others are on it."""
    theirs = {_host_of(member, hosts) for member in odd}
    others = {_host_of(member, hosts) for member in all_of if member not in odd}
    return len(theirs) == 1 and None not in theirs and not theirs & others and len(others) > 1


def divergence(values: Iterable[RankValues]) -> Split | None:
    """The first step at which checksums of what replicas hold differ."""
    splits = [split for cells in _by_name(values) if (split := _split(cells)) is not None]
    return min(splits, key=lambda split: (split.step, not split.members), default=None)


def _split(cells: Sequence[_Told]) -> Split | None:
    if cells[0].cell.quantity != "checksum":
        return None
    by_step: dict[int, dict[Member, _Told]] = defaultdict(dict)
    rounds: Counter[Member] = Counter()
    stepless = all(told.cell.step < 0 for told in cells)
    for told in cells:
        member = told.cell.member
        by_step[rounds[member] if stepless else told.cell.step].setdefault(member, told)
        rounds[member] += 1
    rows = [(step, row) for step, row in sorted(by_step.items()) if len(row) > 1]
    apart = [at for at, (_, row) in enumerate(rows) if len({told.cell.token for told in row.values()}) > 1]
    if not apart:
        return None
    step, row = rows[apart[0]]
    counts = Counter(told.cell.token for told in row.values())
    (token, most), *_ = counts.most_common(1)
    odd = tuple(member for member, told in row.items() if told.cell.token != token) if 2 * most > len(row) else ()
    shown = [next(c for c in row.values() if c.cell.token == t) for t, _ in reversed(counts.most_common())][:2]
    if odd:
        shown = [row[odd[0]], next(told for told in row.values() if told.cell.token == token)]
    after = apart[-1] < len(rows) - 1
    return Split(
        cells[0].cell.name, -1 if stepless else step, odd, apart[0] > 0, after, tuple(_ref(told) for told in shown)
    )


def _by_name(values: Iterable[RankValues]) -> list[list[_Told]]:
    """Cells of one name, by file; files of which each is about ranks of its own are taken together."""
    piles: dict[tuple[str, str], list[_Told]] = defaultdict(list)
    records = [(record, {cell.member for cell in record.cells} - {Member()}) for record in values]
    several = Counter(member for _, members in records for member in members)
    for record, members in records:
        apart = len(members) == 1 or all(several[member] == 1 for member in members)
        for cell in record.cells:
            if cell.member != Member():  # else of a rank that nothing names
                piles["" if apart else record.source, cell.name].append(_Told(record.source, cell))
    return list(piles.values())


def _ref(told: _Told) -> Ref:
    cell = told.cell
    rank = cell.member.ranks[0] if len(cell.member.ranks) == 1 else None
    at = f", step {cell.step}" if cell.step >= 0 else ""
    return Ref(told.source, f"line {cell.line} ({cell.name}{at})", cell.quote[:200], rank)


class DataShare(Struct, frozen=True):
    """How much of the steps a rank waits for data, by lines that tell the parts of a step."""

    member: Member
    share: float
    data_ms: float
    whole_ms: float
    """Of one step."""
    lines: int
    ref: Ref


def data_shares(values: Iterable[RankValues]) -> list[DataShare]:
    """That of every rank whose lines tell a time for data beside others."""
    lines: dict[tuple[Member, str, int], dict[Quantity, float]] = defaultdict(lambda: defaultdict(float))
    last: dict[Member, _Told] = {}
    for record in values:
        for cell in record.cells:
            if cell.quantity in ("data", "work", "wait", "step"):
                lines[cell.member, record.source, cell.line][cell.quantity] += cell.value
            if cell.quantity == "data":
                last[cell.member] = _Told(record.source, cell)
    spent: dict[Member, list[tuple[float, float]]] = defaultdict(list)
    for (member, _, _), parts in lines.items():
        data = parts.get("data")
        whole = max(parts["step"], (data or 0.0) + parts["work"] + parts["wait"])
        if data is not None and whole > data:
            spent[member].append((data, whole))
    return [
        DataShare(member, data / whole, data / len(each), whole / len(each), len(each), _ref(last[member]))
        for member, each in spent.items()
        for data, whole in [map(sum, zip(*each, strict=True))]
    ]


def grown(values: Iterable[RankValues], since: Ref) -> _Told | None:
    """The part of a step that makes it longer from a line on: of those that grew by as much, one being a part of the
    other, the one that was shortest before."""
    line = int(since.locator.removeprefix("line "))
    parts: dict[tuple[str, Member], tuple[list[_Told], list[_Told]]] = defaultdict(lambda: ([], []))
    for record in values:
        for cell in record.cells if record.source == since.source else ():
            if cell.quantity in ("data", "work", "wait"):
                parts[cell.name, cell.member][cell.line >= line].append(_Told(record.source, cell))
    growth: dict[tuple[str, Member], tuple[float, float]] = {}
    for key, (before, after) in parts.items():
        if min(len(before), len(after)) >= _LEAST_WAITS:
            usual = median(told.cell.value for told in before)
            growth[key] = (median(told.cell.value for told in after) - usual, usual)
    most = max((grew for grew, _ in growth.values()), default=0.0)
    alike = [key for key, (grew, _) in growth.items() if grew >= _AS_MUCH * most > 0]
    return parts[min(alike, key=lambda key: growth[key][1])][1][0] if alike else None


def ranks_of(case: Case, members: Iterable[Member]) -> tuple[int, ...]:
    """The ranks of the members; those of a host where only the host was named and its ranks are known."""
    found: set[int] = set()
    for member in members:
        found |= set(member.ranks or (case.people.ranks_on(member.host) if member.host else ()))
    return tuple(sorted(found))


def hosts_of(case: Case, members: Sequence[Member]) -> tuple[str, ...]:
    """The one host that all of them are on, where it is known."""
    hosts = {m.host or (case.people.host_of(m.ranks[0]) if m.ranks else None) for m in members}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return (host,) if host else ()
