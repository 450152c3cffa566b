"""The search for bad hosts, uplinks and pairs: the real one, over simulated outcomes."""

from __future__ import annotations

import random

import pytest

from whichrank.fleet.pairing import Search, all_pairs, most_rounds, settle

HOSTS = [f"node{n:02d}" for n in range(64)]


def outcome(a, b, bad=(), groups=(), pairs=()):
    if a in bad or b in bad or {a, b} in [set(p) for p in pairs]:
        return False
    return all((a in group) == (b in group) for group in groups)


def search(hosts, seed, **faults):
    found = Search(hosts, seed)
    while pairs := found.next_round():
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs)
        found.note({(a, b): outcome(a, b, **faults) for a, b in pairs})
    return found.blame()


@pytest.mark.parametrize("seed", range(60))
def test_up_to_three_bad_hosts_among_64(seed):
    dice = random.Random(seed)
    bad = set(dice.sample(HOSTS, dice.randint(0, 3)))
    told = search(HOSTS, seed, bad=bad)
    assert set(told.hosts) == bad
    assert (told.groups, told.pairs, told.unsettled) == ((), (), ())
    assert told.rounds <= most_rounds(64) == 18


@pytest.mark.parametrize("seed", range(60))
def test_up_to_three_bad_uplinks_among_64(seed):
    dice = random.Random(seed)
    hosts = HOSTS[:]
    if seed % 2:
        dice.shuffle(hosts)  # racks need not be neighbours in the list
    size = dice.choice([4, 8])
    racks = [hosts[n : n + size] for n in range(0, 64, size)]
    groups = [set(rack) for rack in dice.sample(racks, dice.randint(1, 3))]
    told = search(HOSTS, seed, groups=groups)
    assert sorted(map(sorted, told.groups)) == sorted(map(sorted, groups))
    assert (told.hosts, told.pairs, told.unsettled) == ((), (), ())
    assert told.rounds <= most_rounds(64)


def test_a_passing_disturbance_blames_nobody():
    dice = random.Random(1)
    for seed in range(40):
        found = Search(HOSTS, seed)
        while pairs := found.next_round():
            # One pair in a hundred fails once, by chance.
            found.note({pair: dice.random() > 0.01 for pair in pairs})
        told = found.blame()
        assert (told.hosts, told.groups) == ((), ())


@pytest.mark.parametrize("count", [2, 3, 8, 9, 64])
def test_every_pair_once(count):
    hosts = HOSTS[:count]
    rounds = list(all_pairs(hosts))
    assert len(rounds) == count - 1 if count % 2 == 0 else count
    seen = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(seen) == len(set(seen)) == count * (count - 1) // 2
    for pairs in rounds:
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs)


def test_one_slow_pair_is_found_by_testing_all():
    slow = ("node17", "node42")
    results = {p: [outcome(*p, pairs=[slow])] for pairs in all_pairs(HOSTS) for p in (tuple(sorted(x)) for x in pairs)}
    told = settle(HOSTS, results, 63)
    assert told.pairs == (slow,)
    assert told.hosts == ()


def test_of_two_hosts_nobody_knows_which():
    told = search(["a", "b"], 0, bad={"b"})
    assert told.hosts == ()
    assert told.pairs == (("a", "b"),)


def test_nothing_to_do():
    assert Search([]).next_round() == []
    assert Search(["a"]).next_round() == []
    assert settle(["a", "b"], {("a", "b"): [True]}).hosts == ()


def test_a_bad_host_that_sometimes_passes():
    """Every fifth of its tests is good: an odd good test does not clear it, and nobody else is accused."""
    right = 0
    for seed in range(20):
        dice = random.Random(seed)
        bad = dice.choice(HOSTS)
        found = Search(HOSTS, seed)
        while pairs := found.next_round():
            found.note({pair: bad not in pair or dice.random() < 0.2 for pair in pairs})
        blame = found.blame()
        assert set(blame.hosts) <= {bad}
        right += blame.hosts == (bad,)
    assert right >= 19
