"""Lines in which hosts name themselves, or are named: where lines that are otherwise alike have different names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from whichrank.facts.host_topics import cause_of
from whichrank.facts.messages import recognise
from whichrank.flows.diagnose.odd_hosts.differences import one_that_differs
from whichrank.flows.diagnose.odd_hosts.texts import (
    COUNTED,
    HOSTS,
    MOST_HOSTS,
    OF_RANKS,
    Said,
    Text,
    kind_of,
    quoted,
    words_of,
)
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import short_name

_NAMED = re.compile(r"(?P<before>[\[(<]{0,2})(?P<name>[A-Za-z][\w.-]{1,62})(?P<behind>[\])>:|,]{0,3})")
_FIRST_WORDS, _LAST_WORDS = 4, 12
"""The name stands among the first; that of a host that is known elsewhere may stand further behind."""
_HERE = "(this host)"
"""A host's own name, which each says otherwise."""
_ABOUT_NOTHING = re.compile(r"\W+|\[[^\]]*\]|INFO|WARN(?:ING)?|ERROR|DEBUG|\d\d-\d\d")
"""Separators, the rank, the level."""


def by_beginning(texts: Iterable[Text]) -> dict[tuple[str, ...], list[Said]]:
    """The lines behind each way to begin with a name."""
    families: dict[tuple[str, ...], list[Said]] = defaultdict(list)
    for text in texts:
        for number, line in text.lines:
            words = words_of(line)
            for at, word in enumerate(words[:_FIRST_WORDS]):
                named = _NAMED.fullmatch(word)
                if named and len(words) > at + 1:
                    key = (*(COUNTED.sub("#", word) for word in words[:at]), named["before"], named["behind"])
                    name = short_name(named["name"])
                    behind = tuple(_HERE if word.partition(".")[0] == name else word for word in words[at + 1 :])
                    families[key].append(Said(text.label, number, name, behind, line.strip()))
    return families


def by_words_before(texts: Iterable[Text], peers: Collection[str]) -> Iterable[list[Said]]:
    """The lines in which the name of a known host stands further behind: what one host says of each of the others."""
    families: dict[tuple[str, ...], list[Said]] = defaultdict(list)
    for text in texts if peers else ():
        for number, line in text.lines:
            words = words_of(line)
            for at, word in enumerate(words[_FIRST_WORDS:_LAST_WORDS], _FIRST_WORDS):
                named = _NAMED.fullmatch(word)
                if named and len(words) > at + 1 and (name := short_name(named["name"])) in peers:
                    families[tuple(COUNTED.sub("#", word) for word in words[:at])].append(
                        Said(text.label, number, name, words[at + 1 :], line.strip())
                    )
    return families.values()


def hosts_alike(said: Sequence[Said]) -> set[str]:
    """The names of several hosts of one kind, which begin at least two lines that are otherwise the same."""
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in said:
        names[each.words].add(each.name)
    shared = [those for those in names.values() if len(those) >= HOSTS - 1]
    peers = set().union(*shared) if len(shared) > 1 else set()
    kinds = Counter(map(kind_of, peers))
    return {name for name in peers if kinds[kind_of(name)] > 1 and not OF_RANKS.search(name)}


def odd_of(said: Sequence[Said], peers: Collection[str]) -> Iterator[OddHost]:
    """What one of the hosts that begin these lines says otherwise, topic by topic."""
    topics: dict[tuple[str, int], dict[str, Said]] = defaultdict(dict)
    seen: Counter[tuple[str, str]] = Counter()
    for each in said:
        if each.name in peers:
            topic = _topic(each.words)
            topics[topic, seen[each.name, topic]][each.name] = each
            seen[each.name, topic] += 1
    hosts = {name for name, _ in seen}
    if not HOSTS <= len(hosts) <= MOST_HOSTS:
        return
    everywhere = Counter(words for _, words in {(each.name, each.words) for each in said})
    for by_host in (*topics.values(), *_lone(said, peers, hosts)):
        found = one_that_differs(by_host) if by_host.keys() == hosts else None
        cause = cause_of(found.own, found.usual, " ".join(words_of(found.said.text))) if found is not None else None
        if found is None or cause is None or everywhere[found.said.words] > 1:
            continue  # others say it too, a line earlier or later
        if not _tells_another(found.said.text, cause):
            peer = next(each for each in by_host.values() if each is not found.said)
            yield OddHost(found.said.name, cause, quoted(found.said), quoted(peer), len(hosts))


def _topic(words: Sequence[str]) -> str:
    """What a line is about: its first word that names no process, rank or level."""
    word = next((word for word in words if not _ABOUT_NOTHING.fullmatch(word)), words[0])
    return COUNTED.sub("#", word.partition("=")[0])


def _tells_another(line: str, cause: str) -> bool:
    """Whether the line says by itself that something else is wrong: its own rule has judged that."""
    return any(signature.role == "root" and signature.cause != cause for signature, _ in recognise(line))


def _lone(said: Sequence[Said], peers: Collection[str], hosts: Collection[str]) -> Iterator[dict[str, Said]]:
    """The only line of every host, whatever it begins with: `node3 /dev/sda1 ext4 /` beside `node1 nas:/data nfs4`."""
    of_hosts = [each for each in said if each.name in peers]
    if len(of_hosts) == len(hosts) and len({COUNTED.sub("#", each.words[0]) for each in of_hosts}) > 1:
        yield {each.name: each for each in of_hosts}
