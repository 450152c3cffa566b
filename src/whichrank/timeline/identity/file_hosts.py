"""Which host a file is of, where neither the file nor its lines say so: by the names of the files beside it.

People save `n0111.err` and `n0112.err`, and `n0112.dmesg` beside them. Such a name is a host's if other evidence names
that host or two of its siblings, if the files of one name are of several kinds, one of them of a tool for hosts, or if
names of files of one kind differ in their numbers only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from whichrank.timeline.identity.addresses import by_ending
from whichrank.timeline.identity.who import by_short_name, family, host_in_name, short_name

_TOOLS = re.compile(
    r"dmesg|kern|journal|syslog|messages|\bps\b|smi|topo|ibstat|ethtool|ifconfig|\bip\b|limits|\bdf\b|free|\btop\b|lsmod"
    r"|py-?spy|stacks?|gdb|env\b",
    re.IGNORECASE,
)
_HOST_TOOL = r"(dmesg|kern(?:el)?(?:[_-]?log)?|journal(?:ctl)?|syslog|nvidia-smi|ibstat|ethtool)"
_TOOL_FIRST = re.compile(rf"{_HOST_TOOL}[_-](?=\w)", re.IGNORECASE)
_TOOL_LAST = re.compile(rf"[_-]{_HOST_TOOL}$", re.IGNORECASE)
_STACKS_FIRST = re.compile(r"(py-?spy|stacks?|gdb)[_-](?=[a-z])", re.IGNORECASE)
_PID_LAST = re.compile(r"[_-](?:pid[_-]?)?\d{3,7}$")
_NUMBER = re.compile(r"\d+")
_NO_HOST = re.compile(
    r"(?:.*[_.-])?(?:rank|local|global|gpu|cuda|device|step|epoch|iter\w{0,8}|default|trainer|task|proc\w{0,4}|part|logs?"
    r"|out|std(?:out|err)|err|run|job|slurm|attempt|dump|trace|shard|file|test|case|train(?:ing)?|worker|main|exp\w{0,9}|trial|seed|v|version|model|baseline|output|result|eval|val"
    r"|data|pid|thread|stage|chunk|day|week|issue|ticket|note)s?[_-]?\d*|[a-z][_-]?\d{0,2}",
    re.IGNORECASE,
)

_PLAIN = re.compile(r"(?:pod|node|host|worker|machine|server)[_-]?(\d{1,5})", re.IGNORECASE)
"""What people call the first, the second, … host."""
_LAST_NUMBER = re.compile(r"([\w.-]{0,60}?)(\d{1,5})")

Place = tuple[str, str]
"""Folder, and the name of a file up to its first dot."""


def hosts_of_files(
    sources: Iterable[str], named: Collection[str], spoken: Mapping[str, Collection[str]] | None = None
) -> dict[str, str]:
    """Host by file, for those of which it can be told; `named` are the hosts of which the evidence speaks, `spoken`
    those that the lines of each file name as their own."""
    labels = sorted(set(sources))
    known = by_short_name(named)
    found = {label: host for label in labels if (host := host_in_name(label.rpartition("/")[2], known)) is not None}
    kinds: dict[Place, set[str]] = defaultdict(set)
    for label in labels:
        place, kind = _parted(label)
        if kind and place[1] and not _NO_HOST.fullmatch(place[1]):
            kinds[place].add(kind)
    hosts = _hosts(kinds)
    shapes = Counter(_shape(label) for label, host in found.items() if _stem(label) == short_name(host))
    alike = {label: _stem(label) for label in labels if shapes[_shape(label)] > 1}
    guessed = alike | {label: place[1] for label in labels if (place := _parted(label)[0]) in hosts}
    plain = {label: stem for label in labels if _PLAIN.fullmatch(stem := _stem(label))}
    called = _called({*guessed.values(), *plain.values()}, known)
    known_by = {label: called[name] for label, name in (plain | guessed).items() if name in called}
    return guessed | _by_lines(guessed | plain, spoken or {}) | known_by | found


def _by_lines(guessed: Mapping[str, str], spoken: Mapping[str, Collection[str]]) -> dict[str, str]:
    """What its lines call the host of a file that is named after a host: one name, and that of no other such file."""
    told = {
        label: next(iter(hosts)) for label in guessed if len(hosts := set(spoken.get(label, ())) - {"localhost"}) == 1
    }
    names = Counter(host for _, host in {(guessed[label], host) for label, host in told.items()})
    return {label: host for label, host in told.items() if names[host] == 1}


def _called(names: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
    """What the evidence calls hosts after which files are named: `worker-1` is `train-worker-1` where no other host
    ends so, and its siblings are called alike, `pod-1` is `train-1` where the hosts of one kind have just the numbers
    of the pods."""
    called = {name: host for name in names if (host := by_ending(name, known)) is not None}
    called |= _siblings(called, set(names) - called.keys())
    numbers = {name: int(match[1]) for name in set(names) - called.keys() if (match := _PLAIN.fullmatch(name))}
    kinds: dict[str, dict[int, str]] = defaultdict(dict)
    for short, host in known.items():
        if (match := _LAST_NUMBER.fullmatch(short)) and short not in numbers:
            kinds[match[1]][int(match[2])] = host
    fitting = [hosts for hosts in kinds.values() if hosts.keys() == set(numbers.values())]
    if len(numbers) > 1 and len(set(numbers.values())) == len(numbers) and len(fitting) == 1:
        called |= {name: fitting[0][number] for name, number in numbers.items()}
    return called


def _siblings(called: Mapping[str, str], others: Collection[str]) -> dict[str, str]:
    """`worker-0` is `train-worker-0` where `worker-1` is `train-worker-1`: they differ in the number only."""
    begins: dict[str, set[str]] = defaultdict(set)
    for name, host in called.items():
        begins[family(name)].add(short_name(host).removesuffix(name.lower()))
    alike = {name: begins[family(name)] for name in others if family(name) in begins}
    return {name: f"{next(iter(found))}{name.lower()}" for name, found in alike.items() if len(found) == 1}


def _stem(label: str) -> str:
    return _parted(label)[0][1].lower()


def _shape(label: str) -> tuple[str, str, str]:
    """Files that differ in their numbers only have the same."""
    (folder, stem), kind = _parted(label)
    return folder, _NUMBER.sub("#", stem.lower()), kind


def _parted(label: str) -> tuple[Place, str]:
    folder, _, name = label.rpartition("/")
    stem, _, kind = name.partition(".")
    if tool := _TOOL_FIRST.match(stem):  # `dmesg_n0111.txt`
        return (folder, stem[tool.end() :]), f"{tool[1]}.{kind}"
    if tool := _TOOL_LAST.search(stem):  # `n0111-dmesg.txt`
        return (folder, stem[: tool.start()]), f"{tool[1]}.{kind}"
    if tool := _STACKS_FIRST.match(stem):  # `pyspy_n0111_41877.txt`
        return (folder, _PID_LAST.sub("", stem[tool.end() :])), f"{tool[1]}.{kind}"
    return (folder, stem), kind


def _hosts(kinds: dict[Place, set[str]]) -> set[Place]:
    """The names that have siblings of one kind, and of which they or a sibling look like hosts."""
    siblings: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place, own in kinds.items():
        for kind in own:
            siblings[place[0], kind].append(place)
    found: set[Place] = set()
    for (folder_of, _), places in siblings.items():
        if len(places) < 2:
            continue
        if any(len(kinds[place]) > 1 and any(map(_TOOLS.search, kinds[place])) for place in places):
            found.update(places)
        shapes = Counter(_NUMBER.sub("#", stem) for _, stem in places)
        found.update(p for p in places if _NUMBER.search(p[1]) and shapes[_NUMBER.sub("#", p[1])] > 1)
        # What a tool for hosts printed: `stacks_tn-a.txt`, `stacks_tn-b.txt`.
        families = Counter(family(stem) for _, stem in places if any(map(_TOOLS.search, kinds[folder_of, stem])))
        found.update(p for p in places if "#" in family(p[1]) and families[family(p[1])] > 1)
    return found
