"""Names of hosts, users and accounts: learned wherever evidence tells them, and the same other name everywhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from whichrank.facts.redaction import harmless, host_places
from whichrank.model.host_lists import by_numbers

MOST_NAMES = 200_000
MOST_SECRETS = 5_000
LONGEST_LIST = 20_000
"""Members of one list of nodes; the largest clusters have some 10,000."""
LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbfv])|(?<=\dm)|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
RIGHT = r"(?![A-Za-z0-9])"
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\.?|\d+|[0-9A-Fa-f]*:[0-9A-Fa-f:]*")
_LAST_NUMBER = re.compile(r"(?P<head>.*?)(?P<number>\d{1,6})(?P<tail>[^\d]*)")
_MOST_SIBLINGS = 1000
_SHORT, _DEEPEST = 10, 100
"""A secret that is shorter is looked for as a word of its own; one that is longer in no common pattern: each letter may
be a branch in a branch."""


class Names(Struct):
    """What was learned. Hosts are numbered in their natural order once all is known, so that lists stay lists."""

    hosts: dict[str, int] = field(default_factory=dict)
    """Short names in lower case; the number, 0 before there is one."""
    domains: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=dict)
    persons: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    """Serial numbers and the like."""
    uids: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    spread: set[str] = field(default_factory=set)
    """Secrets that are looked for everywhere once they were seen beside a name."""
    _given: dict[int, int] = field(default_factory=dict)
    """By table the last number given."""
    _numbered: bool = False

    def close(self) -> None:
        """Number the hosts; later ones get the numbers that follow."""
        for number, name in enumerate(sorted(self.hosts, key=by_numbers), 1):
            self.hosts[name] = number
        self._numbered = True

    # What takes a name's place.

    def host(self, name: str) -> str | None:
        """The other name of a host, with or without its domain; None for what is no host's own name."""
        name = name.rstrip(".").lower()
        if not self.is_host(name):
            return None
        short, dot, domain = name.partition(".")
        number = self.hosts.get(short) or self._next(self.hosts, short)
        return f"host-{number:04d}" + (f".{self.domain(domain)}" if dot else "")

    def domain(self, name: str) -> str:
        number = self.domains.get(name.lower()) or self._next(self.domains, name.lower())
        return f"domain-{number}.example"

    def user(self, name: str) -> str | None:
        key = name.lower()
        if key in harmless.USERS or key.isdigit() or re.fullmatch(r"user-\d+", key):
            return None
        return f"user-{self.users.get(key) or self._next(self.users, key)}"

    def account(self, name: str, *, sure: bool = False) -> str | None:
        key = name.lower()
        if (
            (harmless.is_common(key) and not sure)
            or (key.isdigit() and len(key) < 10)
            or re.fullmatch(r"account-\d+", key)
        ):
            return None
        return f"account-{self.accounts.get(key) or self._next(self.accounts, key)}"

    def person(self, name: str) -> str:
        key = " ".join(name.lower().split())
        return f"person-{self.persons.get(key) or self._next(self.persons, key)}"

    def serial(self, name: str) -> str | None:
        if re.fullmatch(r"(?i)n/?a|none|unknown|0x?0*|[0f:.\-]+|default|not|requested|unavailable|serial-\d+", name):
            return None
        return f"serial-{self.others.get(name.lower()) or self._next(self.others, name.lower())}"

    def uid(self, number: str) -> str:
        """A number stays one."""
        return str(60_000 + (self.uids.get(number) or self._next(self.uids, number)))

    def secret(self, value: str) -> str:
        if re.fullmatch(r"redacted-\d+", value):
            return value
        return f"redacted-{self.secrets.get(value) or self._next(self.secrets, value)}"

    def _next(self, table: dict[str, int], key: str) -> int:
        """A number that no other name of its kind has: those that were learned have the first ones."""
        number = max(self._given.get(id(table), 0), len(table)) + 1
        table[key] = self._given[id(table)] = number
        return number

    # What is learned.

    def is_host(self, name: str) -> bool:
        name = name.lower().rstrip(".")
        short = name.partition(".")[0]
        return not (
            short in harmless.HOSTS
            or len(short) < 2
            or _ADDRESS.fullmatch(name)
            or harmless.CODE_FILE.search(name)
            or harmless.EXCEPTION.search(name)
            or harmless.is_public_domain(name)
            or re.fullmatch(r"host-\d{4,}", short)
        )

    def learn_host(self, name: str, *, sure: bool) -> None:
        name = name.lower().rstrip(".-")
        if not self.is_host(name) or len(self.hosts) >= MOST_NAMES:
            return
        short, dot, domain = name.partition(".")
        if not sure and not dot and not _is_strong(short, host=True):
            return
        self.hosts.setdefault(short, 0)
        if dot:
            self.domains.setdefault(domain, len(self.domains) + 1)

    def learn_user(self, name: str, *, sure: bool) -> None:
        key = name.lower().rstrip(".")
        if self.user_is_one(key, sure=sure) and len(self.users) < MOST_NAMES:
            self.users.setdefault(key, len(self.users) + 1)

    @staticmethod
    def user_is_one(name: str, *, sure: bool) -> bool:
        name = name.lower()
        if name in harmless.USERS or name.isdigit() or len(name) < 2:
            return False
        return sure or not (harmless.is_common(name) or harmless.CODE_FILE.search(name) or harmless.is_device(name))

    def learn_account(self, name: str) -> None:
        if not harmless.is_common(name) and not name.isdigit() and len(self.accounts) < MOST_NAMES:
            self.accounts.setdefault(name.lower(), len(self.accounts) + 1)

    def learn_secret(self, value: str) -> None:
        """A value that must vanish wherever it stands; not a word that other lines are made of."""
        if len(self.spread) >= MOST_SECRETS:
            return
        short = len(value) < 6 or (value.isdigit() and len(value) < 8)
        if (
            short
            or harmless.is_common(value)
            or (value.isalpha() and len(value) < 10)
            or value.startswith(("/", "$", "<"))
        ):
            return
        if re.fullmatch(r"[a-z_]+(?:[.(\[][\w.()\[\]'\"]*)+", value):  # code: os.environ["X"], args.password
            return
        self.spread.add(value)

    # What they are looked for by.

    def known(self) -> re.Pattern[str] | None:
        """Every name that is replaced wherever it stands."""
        hosts = [name for name in self.hosts if _is_strong(name, host=True)]
        strong = [*hosts]
        strong += [name for name in self.domains if "." in name or not harmless.is_common(name)]
        strong += [name for table in (self.users, self.accounts) for name in table if _is_strong(name)]
        strong += [name for name in self.persons if " " in name]
        if not strong:
            return None
        return re.compile(
            f"{LEFT}(?:{'|'.join([_trie(map(str.lower, strong)), *_siblings(hosts)])}){RIGHT}", re.IGNORECASE
        )

    def weak_hosts(self) -> frozenset[str]:
        """Names that are also common words: replaced only where a host must stand."""
        return frozenset(name for name in self.hosts if not _is_strong(name, host=True))

    def spread_pattern(self) -> re.Pattern[str] | None:
        forms = {form for value in self.spread for form in _forms(value)}
        if not forms:
            return None
        short, long, longest = set[str](), set[str](), set[str]()
        for form in forms:
            (short if len(form) < _SHORT else long if len(form) <= _DEEPEST else longest).add(form)
        patterns = [re.escape(form) for form in sorted(longest, key=len, reverse=True)]
        patterns += [_trie(long)] if long else []
        patterns += [f"{LEFT}{_trie(short)}{RIGHT}"] if short else []
        return re.compile("|".join(patterns))

    def other_name(self, name: str) -> tuple[str, str] | None:
        """Kind and other name of something that `known` found."""
        key = name.lower()
        if key in self.hosts:
            other = self.host(key)
            return ("host", other) if other else None
        if key in self.domains:
            return "domain", self.domain(key)
        if key in self.users:
            user = self.user(key)
            return ("user", user) if user else None
        if key in self.accounts:
            account = self.account(key)
            return ("account", account) if account else None
        if key in self.persons:
            return "person", self.person(key)
        other = self.host(key)  # it differs from a known host in its number only
        return ("host", other) if other else None


def members(head: str, inner: str, tail: str) -> Iterator[str]:
    """`gpu`, `001-003,007`, `` -> gpu001, gpu002, gpu003, gpu007."""
    count = 0
    for part in inner.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            count += 1
            if count > LONGEST_LIST:
                return
            yield f"{head}{number:0{len(first)}d}{tail}"


def compact(numbers: Iterable[int]) -> str:
    """[1, 2, 3, 7] -> 0001-0003,0007."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a:04d}" if a == b else f"{a:04d}-{b:04d}" for a, b in runs)


def _is_strong(name: str, *, host: bool = False) -> bool:
    if host and host_places.SHAPES.pattern.fullmatch(name):
        return True
    # A word with a number behind it (rank3, eth0, cuda:0) is a device unless it has the shape of a host.
    return len(name) > 2 and not harmless.is_common(name) and not name.isdigit() and not harmless.is_device(name)


def _siblings(hosts: Iterable[str]) -> list[str]:
    """Patterns of names that differ from a host's in its last number only: its neighbours in the same cluster."""
    found: dict[str, None] = {}
    for name in hosts:
        parts = _LAST_NUMBER.fullmatch(name)
        letters = parts["head"].strip("-_0123456789") if parts else ""
        if parts and len(letters) > 2 and not harmless.is_common(letters) and not harmless.is_device(name):
            found[f"{re.escape(parts['head'])}\\d{{{len(parts['number'])}}}{re.escape(parts['tail'])}"] = None
    return list(found)[:_MOST_SIBLINGS]


def _forms(value: str) -> Iterator[str]:
    """A secret as it is, and as it is written inside URLs, JSON and Kubernetes' secrets."""
    yield value
    for form in (quote(value, safe=""), quote(value), json.dumps(value)[1:-1]):
        if form != value:
            yield form
    if len(value) >= 8:
        yield base64.b64encode(value.encode()).decode().rstrip("=")


_Node = dict[str, Any]


def _trie(words: Iterable[str]) -> str:
    """One pattern for many words, with their common beginnings taken out: thousands of hosts cost what one costs."""
    root: _Node = {}
    for word in words:
        node = root
        for sign in word:
            node = node.setdefault(sign, {})
        node[""] = {}
    return _pattern(root)


def _pattern(node: _Node) -> str:
    branches = []
    for sign, child in sorted(node.items(), reverse=True):
        if sign:
            run, end = _run(sign, child)
            branches.append(re.escape(run) + _pattern(end))
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{joined})?" if "" in node else joined


def _run(run: str, node: _Node) -> tuple[str, _Node]:
    """Letters that only one word goes on with: depth is bounded by the branches, not by the length."""
    while len(node) == 1 and "" not in node:
        ((sign, node),) = node.items()
        run += sign
    return run, node
