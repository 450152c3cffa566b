"""The redactor: text in, text without secrets and identities out, the same way in every file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from whichrank.facts.redaction import addresses, harmless, host_places, person_places, places, secret_patterns, secrets
from whichrank.facts.redaction.addresses import Addresses
from whichrank.facts.redaction.marks import MARK, Marks, found, found_at, places_of
from whichrank.facts.redaction.names import Names, compact, members

_HARD = re.compile(r"(?i)\.(?:com|org|edu|gov|mil|internal|lan|corp|intranet|localdomain|example|invalid|amazonaws)$")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069/\\]")
_LIST_END = re.compile(r"(?<![,;]) |(?<=[,;])  ")
_BEFORE_VERSION = re.compile(
    r"(?i)(?:version|release|==|>=|<=|~=|cudnn|driver|firmware|fw|vbios)[\s:=v]{0,4}$|(?<![a-z])v$"
)
_PLAIN_FLOW = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{4,}\s*$")
_PEM_BODY = re.compile(
    r".{0,120}?[A-Za-z0-9+/=]{4,}[\s\"',\\]*|.{0,120}(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash|Encryption|Public-Lines|Private-Lines)[^\n]{0,200}\s*|\s*"
)


def without_secrets(text: str) -> str:
    """Keys, tokens and passwords masked, names and addresses left: for what goes to people of the same team."""
    counts: Counter[str] = Counter()
    marks = Marks(text, counts)
    secrets.hide_all(marks, lambda kind, _value: marks.put(kind, "redacted"))
    return marks.restored()


class Learner:
    """The first pass: collects the names and the secrets that the second one replaces everywhere."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def text(self, text: str) -> None:
        marks = Marks(text, Counter())
        secrets.hide_blocks(marks, self._hide)
        secrets.hide_urls(marks, self._hide)
        secrets.hide_named(marks, self._hide)
        self._hosts(marks.text)
        self._people(marks.text)

    def _hide(self, kind: str, value: str) -> str:
        if kind in ("named-secret", "password", "authorization"):
            self.names.learn_secret(value)
        elif kind == "header":  # a scheme and its word; cookies
            for part in re.split(r"[;,\s]+", value):
                self.names.learn_secret(part.partition("=")[2] or part)
        if kind in ("url-credentials", "password") and ":" in value:
            self.names.learn_secret(value.partition(":")[2])
        return "?"

    def _hosts(self, text: str) -> None:
        learn = self.names.learn_host
        for sure, around in ((True, (*host_places.SURE_HOSTS, host_places.SHAPES)), (False, host_places.MAYBE_HOSTS)):
            for place in around:
                for match in near(text, place):
                    if text[match.end("n") : match.end("n") + 1] != "[":
                        learn(match["n"], sure=sure)
        for match in found_at(host_places.ANSWERED, text, places_of(text, host_places.ASKED), lines=2):
            learn(match["n"], sure=True)
        for match in near(text, host_places.LISTED):
            self._list(match["list"])
        for match in near(text, host_places.NODELIST):
            if is_nodelist(match):
                for name in members(match["head"], match["inner"], match["tail"]):
                    learn(name, sure=True)
        for match in near(text, host_places.FQDN):
            name = match["n"]
            if is_domain(match) and any(sign.isdigit() for sign in name.partition(".")[0]) and name.count(".") > 1:
                learn(name, sure=True)

    def _list(self, text: str) -> None:
        for match in re.finditer(
            r"([A-Za-z][\w.\-]*)(?:\[([\d,\-]+)\]([\w.\-]*))?", _LIST_END.split(text, maxsplit=1)[0]
        ):
            if match[2]:
                try:
                    for name in members(match[1], match[2], match[3]):
                        self.names.learn_host(name, sure=True)
                except ValueError:
                    continue
            elif not harmless.is_common(match[1]):
                self.names.learn_host(match[1], sure=False)

    def _people(self, text: str) -> None:
        for sure, around in ((True, person_places.SURE_USERS), (False, person_places.MAYBE_USERS)):
            for place in around:
                for match in near(text, place):
                    self.names.learn_user(match["n"], sure=sure)
        for place in (*person_places.ACCOUNTS, *person_places.REPOSITORIES):
            for match in near(text, place):
                self.names.learn_account(match["n"])
        for match in near(text, person_places.EMAIL):
            self.names.learn_user(match["user"], sure=False)
        self._tables(text)
        for place in (
            person_places.PERSON,
            person_places.ADDRESSED,
            person_places.AUTHOR,
            person_places.GECOS,
            person_places.BRACKETED,
        ):
            for match in near(text, place):
                if " " in match["n"].strip():
                    self.names.person(match["n"].strip())

    def _tables(self, text: str) -> None:
        """Columns of tables: sacct -P, squeue -o, exports of databases, lists of hosts in CSV."""
        for sign in (sign for sign in "|,\t;" if sign in text):
            self._table(text, sign)

    def _table(self, text: str, sign: str) -> None:
        header: list[str] = []
        for line in text.splitlines():
            cells = [cell.strip(_AROUND_CELL) for cell in line.split(sign)] if sign in line else []
            if len(cells) < (3 if sign == "|" else 2):
                header = []
            elif _TITLES.intersection(titles := [cell.lower() for cell in cells]):
                header = titles
            elif header:
                for title, cell in zip(header, cells, strict=False):
                    self._cell(title, cell)

    def _cell(self, title: str, cell: str) -> None:
        if not re.fullmatch(r"[\w.@+\-]{2,63}", cell):
            return
        if title in ("user", "owner", "uid", "username"):
            self.names.learn_user(cell, sure=False)
        elif title in ("account", "group", "project", "reservation"):
            self.names.learn_account(cell)
        elif title in ("node", "nodelist", "host", "hostname", "nodes", "batchhost"):
            self.names.learn_host(cell, sure=False)


_AROUND_CELL = " \t\r\"'"
_TITLES = frozenset(("user", "account", "nodelist", "hostname", "host", "owner", "username"))


class Redactor:
    """The second pass."""

    def __init__(self, names: Names, key: bytes) -> None:
        self.names = names
        self.counts: Counter[str] = Counter()
        self._addresses = Addresses(key)
        self._known = names.known()
        self._weak = names.weak_hosts()
        self._spread = names.spread_pattern()

    def text(self, text: str) -> str:
        """Any text; lines stay lines."""
        marks = Marks(text, self.counts)
        put = marks.put

        def hide(kind: str, value: str) -> str:
            if MARK.sub("", value).strip() == "" or not value:
                return value
            return put(kind, self.names.secret(value))

        if self._spread is not None:
            marks.sub(self._spread, lambda m: hide("known-secret", m.group()))
        secrets.hide_shaped(marks, hide)
        self._mail(marks)
        self._numbers(marks)
        self._names(marks)
        secrets.hide_random(marks, hide)
        return marks.restored()

    def value(self, text: str) -> str:
        """A string that is a value of its own, in a pickle or in JSON: it may be a host's name and nothing else."""
        if text.lower().partition(".")[0] in self._weak and (other := self.names.host(text)):
            self.counts["host"] += 1
            return other
        return self.text(text)

    def path(self, path: str) -> str:
        """A relative path, folder by folder."""
        parts = self.text("/" + path).split("/")[1:]
        if len(parts) != path.count("/") + 1:
            parts = [self.text(part) for part in path.split("/")]
        return "/".join(self._component(part) for part in parts)

    def _component(self, name: str) -> str:
        def other(match: re.Match[str]) -> str:
            new = self.names.host(match.group()) if match.group().lower() in self._weak else None
            if new:
                self.counts["host"] += 1
            return new or match.group()

        name = re.sub(r"(?<![A-Za-z0-9\-])[A-Za-z0-9\-]+(?![A-Za-z0-9\-])", other, name)
        return _NOT_IN_NAMES.sub("_", name)[:200] or "_"

    def _mail(self, marks: Marks) -> None:
        _at(
            marks,
            person_places.PERSON,
            lambda m: marks.put("person", self.names.person(m["n"])) if " " in m["n"].strip() else None,
        )
        _at(marks, person_places.ADDRESSED, lambda m: marks.put("person", self.names.person(m["n"])))
        _at(marks, person_places.BRACKETED, lambda m: m["head"] + marks.put("person", self.names.person(m["n"])))
        _at(marks, person_places.EMAIL, lambda m: self._address(m, marks))
        _at(marks, person_places.AUTHOR, lambda m: m["head"] + marks.put("person", self.names.person(m["n"])))
        _at(marks, person_places.UIDS, lambda m: _grouped(m, marks, "uid", self.names.uid(m["n"])))
        _at(marks, person_places.PHONE, lambda m: _grouped(m, marks, "phone", "phone-number"))
        _at(marks, person_places.GECOS, lambda m: m["head"] + marks.put("person", self.names.person(m["n"])))
        marks.sub(person_places.SOCIAL, lambda _: marks.put("card", "card-number"), hint=person_places.SOCIAL_HINT)
        marks.sub(person_places.CARD, lambda m: marks.put("card", "card-number") if _is_card(m.group()) else None)
        _at(marks, person_places.SERIALS, lambda m: _grouped(m, marks, "serial", self.names.serial(m["n"])))

    def _address(self, match: re.Match[str], marks: Marks) -> str | None:
        if harmless.is_public_domain(match["domain"]) and match["user"].lower() in harmless.USERS:
            return None
        user = self.names.user(match["user"]) or "user-0"
        return marks.put("email", f"{user}@{self.names.domain(match['domain'])}")

    def _numbers(self, marks: Marks) -> None:
        if addresses.KERNEL_HINT.search(marks.text):
            marks.sub(addresses.KERNEL_TABLE, lambda m: self._kernel_row(m, marks))
        for pattern, hint in addresses.ALL:
            marks.sub(pattern, lambda m: self._number(m, marks), hint=hint)

    def _kernel_row(self, match: re.Match[str], marks: Marks) -> str:
        local, remote = (marks.put("ipv4", self._addresses.kernel_hex(match[at])) for at in (2, 4))
        return match[1] + local + match[3] + remote + match[5]

    def _number(self, match: re.Match[str], marks: Marks) -> str | None:
        kind = match.lastgroup or ""
        before = match.string[max(0, match.start() - 20) : match.start()]
        if (
            kind == "ipv4"
            and _BEFORE_VERSION.search(before)
            and not match.group().startswith(("10.", "192.168.", "172."))
        ):
            return None
        other = self._addresses.other(kind, match.group())
        return None if other is None else marks.put(kind.removeprefix("dashed_"), other)

    def _names(self, marks: Marks) -> None:
        _at(marks, host_places.NODELIST, lambda m: self._nodelist(m, marks))
        _at(marks, host_places.FQDN, lambda m: self._domain(m, marks))
        _at(marks, host_places.URL_HOST, lambda m: self._url_host(m, marks))
        # Where a name must stand, whatever it is.
        for place in person_places.SURE_USERS:
            _at(marks, place, lambda m: _grouped(m, marks, "user", self.names.user(m["n"])))
        for place in person_places.MAYBE_USERS:
            _at(marks, place, lambda m: self._maybe_user(m, marks))
        for place in person_places.ACCOUNTS:
            _at(marks, place, lambda m: _grouped(m, marks, "account", self.names.account(m["n"])))
        for place in person_places.REPOSITORIES:
            _at(marks, place, lambda m: _grouped(m, marks, "account", self.names.account(m["n"], sure=True)))
        if self._known is not None:
            marks.sub(self._known, lambda m: self._other(m, marks))
        _at(marks, host_places.SHAPES, lambda m: _grouped(m, marks, "host", self.names.host(m["n"])))
        for place in host_places.SURE_HOSTS if self._weak else ():
            _at(marks, place, lambda m: self._weak_host(m, marks))

    def _maybe_user(self, match: re.Match[str], marks: Marks) -> str | None:
        if not self.names.user_is_one(match["n"], sure=False):
            return None
        return _grouped(match, marks, "user", self.names.user(match["n"]))

    def _other(self, match: re.Match[str], marks: Marks) -> str | None:
        found = self.names.other_name(match.group())
        return marks.put(*found) if found else None

    def _weak_host(self, match: re.Match[str], marks: Marks) -> str | None:
        if match["n"].lower().partition(".")[0] not in self._weak:
            return None
        return _grouped(match, marks, "host", self.names.host(match["n"]))

    def _domain(self, match: re.Match[str], marks: Marks) -> str | None:
        name = match["n"]
        short = name.lower().partition(".")[0]
        if not is_domain(match) and short not in self.names.hosts:
            return None
        if harmless.is_public_domain(name):
            return None
        if name.count(".") > 1 or short in self.names.hosts:
            other = self.names.host(name)
            return marks.put("host", other) if other else None
        return marks.put("domain", self.names.domain(name))

    def _url_host(self, match: re.Match[str], marks: Marks) -> str | None:
        name = match["n"].rstrip(".")
        if match["scheme"].lower() in ("file", "env", "pickle", "unix", "ipc", "shm") or not self.names.is_host(name):
            return None
        if match["scheme"].lower() in ("tcp", "http") and name.lower() in harmless.HOSTS:
            return None
        return _grouped(match, marks, "host", self.names.host(name))

    def _nodelist(self, match: re.Match[str], marks: Marks) -> str | None:
        names = list(members(match["head"], match["inner"], match["tail"]))
        if not is_nodelist(match) and not any(name.lower().partition(".")[0] in self.names.hosts for name in names):
            return None
        others = [self.names.host(name.partition(".")[0]) for name in names]
        numbers = [int(other.rpartition("-")[2]) for other in others if other]
        if not numbers:
            return None
        domain = names[0].partition(".")[2]
        return marks.put("host", f"host-[{compact(numbers)}]" + (f".{self.names.domain(domain)}" if domain else ""))


def near(text: str, place: places.Place) -> Iterator[re.Match[str]]:
    """The names at such places of a text."""
    return found(place.pattern, text, place.words, within_word=place.within_word)


def _at(marks: Marks, place: places.Place, change: Callable[[re.Match[str]], str | None]) -> None:
    marks.sub(place.pattern, change, place.words, within_word=place.within_word)


def _grouped(match: re.Match[str], marks: Marks, kind: str, other: str | None) -> str | None:
    """The match with its name replaced."""
    if other is None:
        return None
    begin, end = match.start("n") - match.start(), match.end("n") - match.start()
    whole = match.group()
    return whole[:begin] + marks.put(kind, other) + whole[end:]


def is_domain(match: re.Match[str]) -> bool:
    """Whether dotted words are a domain and not attributes of a program."""
    name = match["n"]
    labels = name.split(".")[:-1]
    if _HARD.search(name):
        return not harmless.is_common(labels[0]) or len(labels) > 1 or labels[0].islower()
    ordinary = all(harmless.is_common(label) or label == "self" for label in labels)
    if ordinary or any(label[:1].isupper() and label[1:].islower() for label in labels):
        return False
    if match["unsure"]:
        return len(labels) > 1 or any(sign.isdigit() or sign == "-" for sign in labels[0])
    return True


def is_nodelist(match: re.Match[str]) -> bool:
    """Whether `name[1-4]` is a list of hosts and not an element of an array: by padding, or by what it is called."""
    inner, head = match["inner"], match["head"]
    padded = re.search(r"(?<!\d)0\d", inner) is not None
    several = "-" in inner or "," in inner
    called = re.search(r"(?i)(?:node|host|worker|compute|dgx|hgx|nid|login|srv|server|-)$", head)
    return (padded or (several and called is not None)) and not match["tail"].startswith((".py", "." * 2))


def _is_card(text: str) -> bool:
    """Whether the digits have the check digit of Luhn."""
    digits = [int(sign) for sign in text if sign.isdigit()][::-1]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) % 10


class Blocks:
    """Keys in PEM over several lines, also when a file is read in pieces."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._inside = False

    def has_key(self, text: str) -> bool:
        """Whether a key begins in the text, or before it."""
        return self._inside or secret_patterns.PEM_BEGIN.search(text) is not None

    def text(self, text: str) -> str:
        if self.has_key(text):
            text = "".join(self._line(line) for line in text.splitlines(keepends=True))
        return self._redactor.text(text)

    def _line(self, line: str) -> str:
        if secret_patterns.PEM_END.search(line):
            self._inside = False
            return line
        begin = secret_patterns.PEM_BEGIN.search(line)
        if begin is not None:
            self._inside = len(line[begin.end() :].strip()) < 40
            return line
        if self._inside:
            if not _PEM_BODY.fullmatch(line):
                self._inside = False
                return line
            self._redactor.counts["pem-block"] += 1
            return _PLAIN_FLOW.sub("redacted\n" if line.endswith("\n") else "redacted", line)
        return line
