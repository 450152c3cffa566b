"""Which hosts to test with which, so that a bad one is found in few rounds; and who is to blame for failed tests.

In a round every host has at most one partner, so a test is not disturbed by another of the same host. A good test
clears both hosts and joins them; what is left apart after a few rounds is tested again with hosts that are known to be
good, and with each other: a single host that fails with everybody is bad itself, several that reach each other but
nobody else share a bad uplink.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, log2

from msgspec import Struct, field

from whichrank.model.preflight import Blame

Pair = tuple[str, str]
_CONFIRM = 2
"""Failed tests with good hosts that it takes to blame a host; how often a failed pair is tested again."""
_PARTNERS, _MANY, _UNCLEAR = 5, 9, (0.25, 0.75)
"""Partners for a host that both passed and failed; more where the share of failures is in between."""


def all_pairs(hosts: Sequence[str]) -> Iterator[list[Pair]]:
    """Every pair once, in N-1 rounds (N rounds for an odd number): the circle method of tournaments."""
    ring: list[str | None] = list(hosts)
    if len(ring) % 2:
        ring.append(None)
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield [(a, b) for a, b in pairs if a is not None and b is not None]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def most_rounds(count: int) -> int:
    """The bound of the search: three times the binary logarithm."""
    return 3 * max(1, ceil(log2(max(2, count))))


class Search(Struct):
    """An adaptive search: ask for `next_round`, test, `note` the results, until there is no round left."""

    hosts: Sequence[str]
    seed: int = 0
    results: dict[Pair, list[bool]] = field(default_factory=dict)
    rounds: int = 0

    def next_round(self) -> list[Pair]:
        """Pairs to test at the same time; empty when everything is settled or the bound is reached."""
        if len(self.hosts) < 2 or self.rounds >= most_rounds(len(self.hosts)):
            return []
        if self.rounds < self._opening():
            return self._matching()
        return self._closer_look()

    def note(self, results: Mapping[Pair, bool]) -> None:
        self.rounds += 1
        for (a, b), good in results.items():
            self.results.setdefault(ordered(a, b), []).append(good)

    def blame(self) -> Blame:
        return settle(self.hosts, self.results, self.rounds)

    def _opening(self) -> int:
        """Rounds of fresh random pairs: enough that the good hosts hang together."""
        return 1 if len(self.hosts) == 2 else max(2, ceil(log2(len(self.hosts)) / 2))

    def _matching(self) -> list[Pair]:
        order = list(self.hosts)
        random.Random(self.seed + self.rounds).shuffle(order)  # noqa: S311 - to spread tests, not for secrets
        return self._greedy(order, lambda a, b: ordered(a, b) not in self.results)

    def _closer_look(self) -> list[Pair]:
        groups = _components(self.hosts, self.results)
        main = set(groups[0])
        suspects = [host for host in self.hosts if host not in main]
        doubtful = self._doubtful(main)
        # What no bad host explains is tested again itself.
        apart = {*doubtful, *(host for host in main if _fails_mostly(host, main, self.results))}
        again = [
            p for p, r in self.results.items()
            if not any(r) and len(r) <= _CONFIRM and main >= set(p) and not apart & set(p)
        ]  # fmt: skip
        home = {host: number for number, group in enumerate(groups) for host in group}
        bad = {(home[a], home[b]) for (a, b), r in self.results.items() if not any(r)}
        bad |= {(b, a) for a, b in bad}
        unsure = [h for h in suspects if self._failed_with(h, main) < _CONFIRM]
        pairs: list[Pair] = []
        used: set[str] = set()
        # Those that are not known to fail with good hosts are tested with good hosts; the others with each other.
        good = [h for h in self.hosts if h in main]
        random.Random(self.seed - self.rounds).shuffle(good)  # noqa: S311
        for host in [*unsure, *doubtful]:
            if host in used:
                continue
            partner = next((g for g in good if g not in used and ordered(host, g) not in self.results), None)
            if partner is not None:
                pairs.append((host, partner))
                used |= {host, partner}
        rest = [host for host in suspects if host not in used]
        pairs += self._greedy(rest, lambda a, b: home[a] != home[b] and (home[a], home[b]) not in bad)
        used |= {host for pair in pairs for host in pair}
        for a, b in again:
            if a not in used and b not in used:
                pairs.append((a, b))
                used |= {a, b}
        return pairs

    def _doubtful(self, main: set[str]) -> list[str]:
        """Hosts that passed with somebody and failed with another: more partners decide, those in between most."""
        found = []
        for host in self.hosts:
            own = _tests_of(host, main, self.results)
            failed = own.count(False) / len(own) if own else 0.0
            if host in main and failed and len(own) < (_MANY if _UNCLEAR[0] < failed < _UNCLEAR[1] else _PARTNERS):
                found.append(host)
        return found

    def _failed_with(self, host: str, main: set[str]) -> int:
        return sum(
            1
            for (a, b), r in self.results.items()
            if not any(r) and ((a == host and b in main) or (b == host and a in main))
        )

    @staticmethod
    def _greedy(order: Sequence[str], fits: object) -> list[Pair]:
        """Each with the next one in the order that fits."""
        pairs: list[Pair] = []
        left = list(order)
        while left:
            one = left.pop(0)
            other = next((h for h in left if fits(one, h)), None)  # type: ignore[operator]
            if other is not None:
                left.remove(other)
                pairs.append((one, other))
        return pairs


def in_rounds(hosts: Sequence[str], test: Callable[[Sequence[Pair]], dict[Pair, bool]], *, thorough: bool) -> int:
    """Test by the search, or every pair; how many rounds it took."""
    if not thorough:
        search = Search(hosts)
        while pairs := search.next_round():
            search.note(test(pairs))
        return search.rounds
    rounds = 0
    bad: list[Pair] = []
    for pairs in all_pairs(hosts):
        bad += [pair for pair, good in test(pairs).items() if not good]
        rounds += 1
    # What failed is tested once more: a passing disturbance is not blamed.
    while bad:
        now: list[Pair] = []
        for pair in bad:
            if not {host for other in now for host in other} & set(pair):
                now.append(pair)
        test(now)
        bad = [pair for pair in bad if pair not in now]
        rounds += 1
    return rounds


def settle(hosts: Sequence[str], results: Mapping[Pair, Sequence[bool]], rounds: int = 0) -> Blame:
    """Who is to blame, by all tests: a pair counts as good if any of its tests was."""
    failed = [pair for pair, tests in results.items() if not any(tests)]
    if not failed:
        return Blame(rounds=rounds)
    groups = _components(hosts, results)
    main = set(groups[0])
    if len(groups) > 1 and len(groups[0]) == len(groups[1]):
        # Nobody can say which half is the good one.
        return Blame(pairs=tuple(sorted(failed)), rounds=rounds)
    bad: list[str] = [h for h in main if _fails_mostly(h, main, results)]
    together: list[tuple[str, ...]] = []
    unsettled: list[str] = []
    for group in groups[1:]:
        across = [p for p in failed if (p[0] in group) != (p[1] in group) and (p[0] in main or p[1] in main)]
        if len(group) > 1:
            together.append(tuple(group))
        elif len(across) >= _CONFIRM:
            bad.append(group[0])
        elif across or any(group[0] in pair for pair in failed):
            unsettled.append(group[0])
    guilty = {*bad, *unsettled, *(h for group in together for h in group)}
    pairs = [pair for pair in failed if not guilty & set(pair)]
    order = {host: number for number, host in enumerate(hosts)}
    return Blame(
        tuple(sorted(bad, key=order.__getitem__)), tuple(together), tuple(sorted(pairs)), tuple(unsettled), rounds
    )


def _fails_mostly(host: str, main: set[str], results: Mapping[Pair, Sequence[bool]]) -> bool:
    """In more than half of at least three tests: an odd good test does not clear it."""
    own = _tests_of(host, main, results)
    return len(own) >= 3 and own.count(False) * 2 > len(own)


def _tests_of(host: str, main: set[str], results: Mapping[Pair, Sequence[bool]]) -> list[bool]:
    return [test for pair, tests in results.items() if host in pair and main >= set(pair) for test in tests]


def _components(hosts: Sequence[str], results: Mapping[Pair, Sequence[bool]]) -> list[list[str]]:
    """Hosts that good tests join, the largest group first."""
    parent = {host: host for host in hosts}

    def top(host: str) -> str:
        while parent[host] != host:
            parent[host] = parent[parent[host]]
            host = parent[host]
        return host

    for (a, b), tests in results.items():
        if any(tests) and a in parent and b in parent:
            parent[top(a)] = top(b)
    found: dict[str, list[str]] = {}
    for host in hosts:
        found.setdefault(top(host), []).append(host)
    return sorted(found.values(), key=len, reverse=True)


def ordered(a: str, b: str) -> Pair:
    return (a, b) if a <= b else (b, a)
