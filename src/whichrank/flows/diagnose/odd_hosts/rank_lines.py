"""What all ranks of one host print otherwise than the ranks of all others."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.facts.host_topics import cause_of
from whichrank.flows.diagnose.odd_hosts.differences import Difference, only_measured
from whichrank.flows.diagnose.odd_hosts.texts import (
    COUNTED,
    HOSTS,
    MOST_HOSTS,
    Said,
    Text,
    host_of_file,
    quoted,
    stem_of,
    words_of,
)
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import People, short_name

_OF_THIS_RANK = re.compile(r"(?i)(?<=rank)[-_:= ]?\d{1,6}")
"""Files and shards that each rank has for itself."""
_TOPIC = (2, 3, 4, 5)
"""So many words at the beginning of a line say what it is about."""
_LINES_OF_RANKS = 400


def of_their_ranks(texts: Sequence[Text], people: People) -> Iterator[OddHost]:
    """What all ranks of one host print otherwise than the ranks of all others, where a line names its rank alone."""
    said: dict[tuple[str, ...], dict[str, list[Said]]] = defaultdict(lambda: defaultdict(list))
    numbered = sum(stem_of(text.label) is not None for text in texts) >= HOSTS
    for text in texts:
        own = host_of_file(text.label, texts, people) or (stem_of(text.label) if numbered else None)
        for number, line in text.lines[:_LINES_OF_RANKS]:
            voice = listen(line.encode(), Clock(0))
            rank = voice.rank if voice.rank is not None else voice.task
            host = voice.host or (people.host_of(rank) if rank is not None else None) or own
            words = words_of(_OF_THIS_RANK.sub("#", voice.text))
            if host is None or len(words) <= _TOPIC[0]:
                continue
            each = Said(text.label, number, short_name(host), words, line.strip())
            topic = tuple(COUNTED.sub("#", word.partition("=")[0]) for word in words[: _TOPIC[-1]])
            for length in _TOPIC:
                said[topic[:length]][each.name].append(each)
    hosts = {name for by_host in said.values() for name in by_host}
    if not HOSTS <= len(hosts) <= MOST_HOSTS:
        return
    told: set[tuple[str, int]] = set()
    for by_host in said.values():
        found = _all_of_one(by_host) if by_host.keys() == hosts else None
        if found is None or (found.said.source, found.said.number) in told:
            continue
        cause = cause_of(found.own, found.usual, " ".join(found.said.words))
        if cause is not None:
            told.add((found.said.source, found.said.number))
            peer = next(lines[0] for name, lines in by_host.items() if name != found.said.name)
            yield OddHost(found.said.name, cause, quoted(found.said), quoted(peer), len(hosts))


def _all_of_one(by_host: Mapping[str, Sequence[Said]]) -> Difference | None:
    """The words that are in all lines of one host and in none of the others, which have others in common."""
    common = {name: set.intersection(*(set(each.words) for each in lines)) for name, lines in by_host.items()}
    anywhere = {name: set().union(*(each.words for each in lines)) for name, lines in by_host.items()}
    always, ever = (Counter(word for words in each.values() for word in words) for each in (common, anywhere))
    of_the_others = {word for word, hosts in always.items() if hosts == len(by_host) - 1 == ever[word]}
    odd = [name for name, words in common.items() if not of_the_others <= words]
    found = []
    for name in odd:
        mine, peer = by_host[name][0], next((by_host[other][0] for other in by_host if other not in odd), None)
        own = [word for word in mine.words if word in common[name] and ever[word] == 1]
        usual = [word for word in peer.words if word in of_the_others - anywhere[name]] if peer is not None else []
        if own and usual and not only_measured(own, usual):
            found.append(Difference(mine, " ".join(own), " ".join(usual)))
    return found[0] if len(found) == 1 else None
