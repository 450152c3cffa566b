"""The two passes over the strings of a file: one listens, the other replaces. Formats don't know which one it is."""

from __future__ import annotations

import re
from typing import Protocol

from whichrank.evidence.scrubbing.repeats import Shapes
from whichrank.facts.redaction import harmless, secret_names
from whichrank.facts.redaction.names import Names
from whichrank.facts.redaction.redactor import Blocks, Learner, Redactor

_HOST_KEYS = frozenset(
    [
        "host",
        "hostname",
        "host_name",
        "node",
        "node_name",
        "nodename",
        "fqdn",
        "master_addr",
        "server",
        "peer",
        "machine",
        "by",
    ]
)
_USER_KEYS = frozenset(
    ["user", "username", "user_name", "owner", "author", "login", "logname", "submitted_by", "created_by"]
)
_ACCOUNT_KEYS = frozenset(["account", "account_name", "allocation", "reservation", "entity", "tenant", "organization"])
_REMEMBERED = 1 << 16
_NAME = re.compile(r"[\w.\- ]{1,64}")


class Voice(Protocol):
    """What a format gives its strings to, and what it writes instead."""

    def begin(self) -> None:
        """Another file begins."""

    def text(self, text: str) -> str:
        """A piece of running text: whole lines, in their order."""
        ...

    def value(self, text: str, key: str = "") -> str:
        """A string that stands for itself, under a key where it has one."""
        ...


class Listening:
    """Learns names and changes nothing."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._learner = Learner(names)
        self._shapes = Shapes()

    def begin(self) -> None:
        pass

    def text(self, text: str) -> str:
        self._learner.text(self._shapes.fresh(text))
        return text

    def value(self, text: str, key: str = "") -> str:
        name = key.lower()
        if name in _HOST_KEYS and text and "/" not in text and " " not in text:
            self._names.learn_host(text.partition(":")[0], sure=name.startswith("host"))
        elif name in _USER_KEYS and text.replace(".", "").replace("-", "").isalnum():
            self._names.learn_user(text, sure=False)
        elif name in _ACCOUNT_KEYS:
            self._names.learn_account(text)
        elif key and _is_secret(key, text):
            self._names.learn_secret(text)
        self._learner.text(text)
        return text


class Replacing:
    """Writes other names in the place of the real ones."""

    def __init__(self, names: Names, redactor: Redactor) -> None:
        self._names = names
        self._redactor = redactor
        self._blocks = Blocks(redactor)
        self._shapes = Shapes(names.spread)
        self._seen: dict[tuple[str, str], str] = {}

    def begin(self) -> None:
        self._blocks = Blocks(self._redactor)

    def text(self, text: str) -> str:
        if self._blocks.has_key(text):
            return self._blocks.text(text)
        return self._shapes.rewritten(text, self._redactor.text, self._redactor.counts)

    def value(self, text: str, key: str = "") -> str:
        if len(self._seen) > _REMEMBERED:
            self._seen.clear()
        found = self._seen.get((key, text))
        if found is None:
            found = self._seen[key, text] = self._value(text, key)
        return found

    def _value(self, text: str, key: str) -> str:
        counts, name = self._redactor.counts, key.lower()
        if key and _is_secret(key, text):
            counts["named-secret"] += 1
            return self._names.secret(text)
        if name in _USER_KEYS and self._names.user_is_one(text, sure=False) and text.lower() in self._names.users:
            counts["user"] += 1
            return self._names.user(text) or text
        if name in _ACCOUNT_KEYS and text.lower() in self._names.accounts:
            counts["account"] += 1
            return self._names.account(text) or text
        if "\n" in text:
            return Blocks(self._redactor).text(text)
        return self._redactor.value(text)


def _is_secret(key: str, text: str) -> bool:
    # In a pickle the string before may be another value, and this one the next key: a word.
    strength = secret_names.name_is_secret(key) if _NAME.fullmatch(key) and not harmless.is_common(text) else ""
    return bool(strength) and secret_names.worth_hiding(text, strength)
