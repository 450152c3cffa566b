"""What one host printed otherwise than all its peers.

Prologs, preflights and entrypoints print the same lines on every host: mounts, limits, versions, clocks, settings. One
that differs on a single host is quiet, early and easily the cause. Where the hosts stand in the lines is not known
beforehand: it is where lines that are otherwise alike have different names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec.structs import replace

from whichrank.facts.host_topics import CAUSES, STOPS_TOO
from whichrank.facts.slowness import complains
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.odd_hosts.named_lines import by_beginning, by_words_before, hosts_alike, odd_of
from whichrank.flows.diagnose.odd_hosts.own_files import in_own_files
from whichrank.flows.diagnose.odd_hosts.rank_lines import of_their_ranks
from whichrank.flows.diagnose.odd_hosts.table_rows import in_tables
from whichrank.flows.diagnose.odd_hosts.texts import COUNTED, Text, text_of
from whichrank.model.contracts import Item
from whichrank.model.verdict import Verdict
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import People, short_name

_FILES = 32
"""What is looked at: hosts say it at the start, and together. Of a file per rank no line stands beside its peers."""
_PATH = re.compile(r"/(?!dev/)[\w.-]{2,}(?:/[\w.-]+)*[:,]?")
_ERROR = re.compile(r"(?:Error|Exception)\b|(?i:\b(?:no such file|not found|missing|failed)\b)")
_SILENT = "replica-divergence"
_SAVED = re.compile(r"[\w./-]{0,160}(?:step|iter|epoch|ckpt|checkpoint)[\w.-]{0,20}\d[\w.-]{0,40}")
_FROM = re.compile(r"(?i)\b(?:load|restor|resum|read)\w{0,4}\b")
_FINISHED = 0.7
"""Of a run that said that it ended well, only what spoils its results without a word is looked for."""
_SYMPTOMS = (
    "unknown", "rank-exception", "rank-native-crash", "size-mismatch", "straggler", "conditional-collective",
    "collective-order", "uneven-inputs",
)  # fmt: skip


def odd_hosts(items: Iterable[Item], people: People, verdict: Verdict) -> list[OddHost]:
    """The lines in which exactly one host differs from all its peers, and that tell of a known cause: any where the
    verdict leaves the cause open, else those of its cause that tell which host it is about."""
    is_open = _leaves_open(verdict)
    if not is_open and (verdict.culprits.hosts or verdict.cause not in (*CAUSES, "healthy")):
        return []
    texts = [text for item in islice(items, _FILES) if (text := text_of(item)) is not None]
    if verdict.cause == "healthy" and not is_open and not any(map(_resumes, texts)):
        return []
    slow = [line for text in texts for line in text.last if complains(line)]
    errors = [line for text in texts for line in text.last if _ERROR.search(line)]
    near = {
        verdict.cause,
        *([_SILENT] if verdict.cause == "healthy" else []),
        *(other.cause for other in verdict.alternatives if verdict.confidence < _FINISHED),
    }
    found = [odd for odd in _all_odd(texts, people) if is_open or odd.cause in near]
    if verdict.cause == "healthy" and not (slow and is_open):
        return [replace(odd, category="corruption") for odd in found if _is_of_another_step(odd)]
    category = "slow" if slow and verdict.category != "hang" else verdict.category
    return [
        replace(
            odd,
            category=verdict.category if odd.cause == STOPS_TOO else category,
            in_error=_is_in(odd, errors) or _is_of(odd.host, people, verdict),
        )
        for odd in found
    ]


def _resumes(text: Text) -> bool:
    """Whether a file tells from what it went on."""
    lines = (line for _, line in text.lines if "ckpt" in line or "heckpoint" in line or "esum" in line)
    return any(_SAVED.search(line) and _FROM.search(line) for line in lines)


def _is_of_another_step(odd: OddHost) -> bool:
    """Whether one host began with the same file as its peers, but that of another step."""
    if odd.cause != _SILENT or odd.usual is None:
        return False
    own, usual = (set(_SAVED.findall(ref.quote)) for ref in (odd.ref, odd.usual))
    return own != usual and {COUNTED.sub("#", name) for name in own} == {COUNTED.sub("#", name) for name in usual}


def _leaves_open(verdict: Verdict) -> bool:
    """Whether it says at most how the job went, and not why."""
    at_work = verdict.cause == "healthy" and verdict.confidence < _FINISHED
    generic = verdict.cause in causes() and causes()[verdict.cause].role in ("generic", "ending")
    late = verdict.cause.startswith("rank-stuck") and verdict.confidence < _FINISHED
    return at_work or generic or late or verdict.cause in _SYMPTOMS


def _is_of(host: str, people: People, verdict: Verdict) -> bool:
    """Whether all that the verdict blames so far is on that host, or its ranks are one of the two sides that differ."""
    ranks, there = set(verdict.culprits.ranks), set(people.ranks_on(host))
    return bool(ranks) and (ranks <= there or there == set(verdict.victims))


def _is_in(odd: OddHost, errors: Iterable[str]) -> bool:
    """Whether an error of the job names a path of the line."""
    paths = [word.rstrip(":,") for word in odd.ref.quote.split() if _PATH.fullmatch(word)]
    return any(path in line for path in paths for line in errors)


def _all_odd(texts: Sequence[Text], people: People) -> list[OddHost]:
    families = by_beginning(texts)
    known = {short_name(host) for host in people.hosts()}
    peers = known.union(*(hosts_alike(said) for said in families.values()))
    found = [
        *in_tables(texts),
        *(o for said in (*families.values(), *by_words_before(texts, peers)) for o in odd_of(said, peers)),
    ]
    return found or list(in_own_files(texts, people)) or list(of_their_ranks(texts, people))
