"""Secrets in text: found by the shape of the value, by the name beside it, or because they are random."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from whichrank.facts.redaction import harmless
from whichrank.facts.redaction.marks import Marks, found_at, places_of
from whichrank.facts.redaction.randomness import CANDIDATE, is_random, likeness
from whichrank.facts.redaction.secret_names import EMPTY, name_is_secret, worth_hiding
from whichrank.facts.redaction.secret_patterns import (
    ASSIGNED,
    BEFORE_SIGN,
    COMMANDS,
    ENV_LINE,
    FLAG,
    HEADER,
    HTPASSWD,
    LONGEST_BEFORE,
    NAME_VALUE,
    NETRC,
    OTHER_FLAGS,
    PAIR,
    PEM_ONE,
    PGPASS,
    PGPASS_HINT,
    PLAIN,
    SAID,
    SCHEME,
    SCHEMES,
    SHORT_FLAGS,
    URL,
    WEBHOOK,
    WORDS,
)
from whichrank.facts.tables import rows

Hide = Callable[[str, str], str]
"""Kind and secret in, replacement out."""


class Token(NamedTuple):
    """One row of secret_tokens.csv."""

    kind: str
    keyword: str
    pattern: re.Pattern[str]
    source: str


@cache
def tokens() -> tuple[Token, ...]:
    """What keys of known services look like; `keyword` is in every one of them."""
    return tuple(
        Token(r["kind"], r["keyword"], re.compile(r["pattern"]), r["source"])
        for r in rows("redaction/secret_tokens.csv")
    )


def hide_all(marks: Marks, hide: Hide) -> None:
    """Replace every secret in the text."""
    hide_shaped(marks, hide)
    hide_random(marks, hide)


def hide_shaped(marks: Marks, hide: Hide) -> None:
    """Replace what is a secret by its shape or by its name."""
    hide_blocks(marks, hide)
    hide_urls(marks, hide)
    for token in tokens():
        if token.keyword in marks.text:
            marks.sub(token.pattern, lambda m, kind=token.kind: hide(kind, m.group()), (token.keyword.lower(),))  # type: ignore[misc]
    hide_named(marks, hide)


def hide_blocks(marks: Marks, hide: Hide) -> None:
    """Keys and certificates in PEM within this text; lines stay lines."""
    if "-----BEGIN" in marks.text:
        marks.sub(PEM_ONE, lambda m: f"-----BEGIN{m['what']}-----{hide('pem-block', m['body'])}")


def hide_urls(marks: Marks, hide: Hide) -> None:
    if ":/" in marks.text or ":\\/" in marks.text:
        marks.sub(URL, lambda m: m["scheme"] + m["sep"] + _url(m["rest"], hide), (":/", ":\\/"))


def _url(rest: str, hide: Hide) -> str:
    user, at, after = _userinfo(rest)
    shown = ""
    if at:
        shown = f"{hide('url-credentials', user)}@" if ":" in user or len(user) > 15 or "%3" in user else f"{user}@"
    place = re.search(r"[/?#]", after)
    host, path = (after[: place.start()], after[place.start() :]) if place else (after, "")
    if path and WEBHOOK.search(after) and len(path) > 8:
        return shown + host + path[0] + hide("webhook", path[1:])
    head, sign, query = re.match(r"([^?#]*)([?#]?)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]
    return shown + host + head + sign + (re.sub(r"([^&;=?#]+)=([^&;#]*)", lambda m: _parameter(m, hide), query))


def _userinfo(rest: str) -> tuple[str, str, str]:
    """`user:password@` before the host; a password may hold slashes and at signs."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return _split_last(rest, len(authority))
    name, colon, _ = authority.partition(":")
    end = rest.rfind("@", 0, len(re.split(r"[?]", rest, maxsplit=1)[0]))
    port = re.match(r"[^:/]*:\d{1,5}(?:/|$)", rest)
    if colon and name and end > 0 and not port:
        return _split_last(rest, end + 1)
    return "", "", rest


def _split_last(rest: str, size: int) -> tuple[str, str, str]:
    user, at, host = rest[:size].rpartition("@")
    return user, at, host + rest[size:]


def _parameter(match: re.Match[str], hide: Hide) -> str:
    name, value = match[1], match[2]
    known = name_is_secret(name) or re.search(
        r"(?i)sign|credential|policy|key|code|assertion|state|x-amz|x-goog|^s[gi]g?$", name
    )
    plain = re.fullmatch(r"[\d.,:TZ+\-]*|[A-Za-z]{0,12}", value)
    if (known and len(value) > 3 and not EMPTY.fullmatch(value)) or (
        len(value) >= 8 and not plain and not harmless.is_common(value)
    ):
        return f"{name}={hide('url-parameter', value)}"
    return match.group()


def hide_named(marks: Marks, hide: Hide) -> None:
    marks.sub(HEADER, lambda m: _valued(m, hide, "header", "strong"), ("authorization", "cookie", "x-", "-token"))
    marks.sub(SCHEME, lambda m: _scheme(m, hide), SCHEMES)
    marks.sub(ENV_LINE, lambda m: _env_line(m, hide), WORDS)
    marks.sub(FLAG, lambda m: _assigned(m, hide, "flag"), WORDS)
    marks.replace(found_at(ASSIGNED, marks.text, _names(marks)), lambda m: _assigned(m, hide, "assignment"))
    marks.sub(SAID, lambda m: _said(m, hide), ("passw", "secret", "token", "key", "pin", "credential"))
    marks.sub(NAME_VALUE, lambda m: _name_value(m, hide), ("value",))
    marks.sub(PAIR, lambda m: _pair(m, hide), ("auth", "credential", "login", "userpass"))
    marks.sub(
        HTPASSWD, lambda m: m["head"] + hide("login", m["user"]) + " " + hide("password", m["value"]), ("htpasswd",)
    )
    marks.sub(PLAIN, lambda m: _plain(m, hide), ("pass", "pw", "secret key"))
    marks.sub(
        NETRC, lambda m: m["head"] + hide("login", m["user"]) + m["sep"] + hide("password", m["value"]), ("password",)
    )
    marks.sub(SHORT_FLAGS, lambda m: _short_flag(m, hide), COMMANDS)
    marks.sub(PGPASS, lambda m: m["head"] + hide("password", m["value"]), hint=PGPASS_HINT)


def _names(marks: Marks) -> Iterator[int]:
    """Where a name of something that is assigned may begin, ascending: near a word of secrets, before a sign."""
    text, behind = marks.text, 0
    for place in places_of(text, marks.there(WORDS)):
        if BEFORE_SIGN.match(text, place):
            yield from range(max(behind, place - LONGEST_BEFORE), place + 1)
            behind = place + 1


def _short_flag(match: re.Match[str], hide: Hide) -> str | None:
    line = match.string[max(match.string.rfind("\n", 0, match.start()), match.start() - 200, 0) : match.start()]
    if match["head"].startswith("-") and OTHER_FLAGS.search(line):
        return None
    return match["head"] + hide("password", match["value"])


def _name_value(match: re.Match[str], hide: Hide) -> str | None:
    strength = name_is_secret(match["key"])
    if not strength or not worth_hiding(match["value"], strength):
        return None
    return match["head"] + match["key"] + match["sep"] + hide("named-secret", match["value"])


def _pair(match: re.Match[str], hide: Hide) -> str:
    q, r = match["q"], match["r"]
    return f"{match['head']}{q}{hide('login', match['user'])}{q}{match['sep']}{r}{hide('password', match['value'])}{r}"


def _plain(match: re.Match[str], hide: Hide) -> str | None:
    """Only what no sentence goes on with."""
    value = match["value"].rstrip(".,;:!?)")
    odd = (
        any(not sign.isalpha() and sign not in "-_./:=" for sign in value[1:])
        or any(map(str.isdigit, value))
        or not value[1:].islower()
    )
    if not odd or harmless.is_common(value) or "=" in value or not worth_hiding(value, "strong"):
        return None
    return match["key"] + match["sep"] + hide("password", value) + match["value"][len(value) :]


def _full_name(match: re.Match[str]) -> str:
    """The whole name of what is assigned: the pattern begins in its middle, at the word that matters."""
    begin = start = match.start("key")
    text = match.string
    while begin > max(0, start - 60) and (text[begin - 1].isalnum() or text[begin - 1] in "_-."):
        begin -= 1
    return text[begin:start] + match["key"]


def _value(match: re.Match[str]) -> tuple[str, str]:
    """The group that holds the value, and the value."""
    for group in ("q4", "q2", "q1", "q3", "bare"):
        if match[group] is not None:
            return group, match[group]
    return "", ""


def _assigned(match: re.Match[str], hide: Hide, kind: str) -> str | None:
    name = _full_name(match)
    strength = name_is_secret(name)
    if not strength:
        return None
    group, value = _value(match)
    if kind == "flag" and (
        value.startswith("-") or (group == "bare" and match["sep"] in (" ", "\0") and strength == "weak")
    ):
        return None
    if kind == "assignment" and match["sep"].strip("\\\"'` ") == ":" and "." in name and strength == "weak":
        return None
    if not worth_hiding(value, strength):
        return None
    whole, at = match.group(), match.start()
    begin, end = match.start(group) - at, match.end(group) - at
    return whole[:begin] + hide("named-secret", value) + whole[end:]


_PHRASE = re.compile(r"(?i)passw|passphrase|secret")
_PHRASE_WORDS = 7
"""A password may be of several words; a sentence about one has more."""


def _env_line(match: re.Match[str], hide: Hide) -> str | None:
    """A line of an environment or of a settings file: the value is all that follows."""
    name, value = match["key"], match["value"]
    strength = name_is_secret(name)
    if not strength or not worth_hiding(value, strength) or (strength == "weak" and " " in value.strip()):
        return None
    spaced = match["sep"].strip() == "" or match["sep"].strip() == ":"
    if spaced and (" " in value.strip() or not name.replace("_", "").isalnum()) and strength != "strong":
        return None
    if spaced and " " in value.strip() and not (_PHRASE.search(name) and value.count(" ") < _PHRASE_WORDS):
        return None  # prose: "Token: see the manual"
    bare = value.rstrip()
    inner = bare.strip("\"',;")
    begin = bare.find(inner)
    tail = bare[begin + len(inner) :] + value[len(bare) :]
    return match["head"] + name + match["sep"] + bare[:begin] + hide("named-secret", inner) + tail


def _valued(match: re.Match[str], hide: Hide, kind: str, strength: str) -> str | None:
    value = match["value"]
    if not worth_hiding(value, strength):
        return None
    return match["key"] + match["sep"] + hide(kind, value.rstrip()) + value[len(value.rstrip()) :]


def _scheme(match: re.Match[str], hide: Hide) -> str | None:
    value = match["value"]
    plain = re.fullmatch(r"[a-z]+|[A-Z][a-z]+|[\d.]+|[a-z_]+(?:[.\-/][a-z_]+)*\.?", value)
    if (
        plain
        or harmless.is_common(value)
        or (match["key"].lower() in ("key", "token", "basic", "digest") and not _mixed(value))
    ):
        return None
    return match["key"] + match["sep"] + hide("authorization", value)


def _mixed(value: str) -> bool:
    return (any(c.isdigit() for c in value) or "=" in value or is_random(value)) and "/" not in value[:2]


def _said(match: re.Match[str], hide: Hide) -> str | None:
    group, value = _value(match)
    bare = value.rstrip(".,;:!?")
    if (
        not worth_hiding(bare, "strong")
        or harmless.is_common(bare)
        or (bare.isalpha() and bare.islower() and group == "bare" and not _PHRASE.search(match["key"]))
    ):
        return None
    whole, at = match.group(), match.start()
    begin = match.start(group) - at
    return whole[:begin] + hide("named-secret", bare) + whole[begin + len(bare) :]


# What stands before a hash that is no secret: a version of code, a checksum.
_OF_CODE = re.compile(
    r"(?i)(?:commit|revision|rev|git[ _\-]?(?:hash|sha|version|describe)?|sha1|sha256|sha512|md5|checksum|"
    r"digest|hash|head is now at|"
    r"build[ _\-]?id|buildid\[sha1\]|etag|merge|parent|tree|blob)[\"']?\s{0,3}[:=@~]?\s{0,3}[\"'(\[]?(?:sha256:)?$"
)


def hide_random(marks: Marks, hide: Hide) -> None:
    """Replace what is random and none of the harmless kinds."""

    def change(match: re.Match[str]) -> str | None:
        token = match.group()
        if not is_random(token) or _is_harmless(match):
            return None
        if is_random_whole(token):
            return hide("random-token", token)
        return re.sub(
            r"[^/.=~!@$%^&*]+",
            lambda part: hide("random-token", part.group()) if is_random(part.group()) else part.group(),
            token,
        )

    marks.sub(CANDIDATE, change)


def is_random_whole(token: str) -> bool:
    """Base64 with slashes is one token; a path with a random folder is not."""
    slashes = token.count("/")
    return not slashes or (not token.startswith("/") and likeness(token) < 0.3 and len(token) / (slashes + 1) > 6)


def _is_harmless(match: re.Match[str]) -> bool:
    token = match.group()
    before = match.string[max(0, match.start() - 40) : match.start()]
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{20,24}", token) and _OF_CODE.search(before):
        return True
    return token.startswith("_Z") or before.endswith("0x")
