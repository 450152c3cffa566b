"""Secrets in text: found by the shape of the value, by the name beside it, or because they are random."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from whichrank.facts.environment import rows
from whichrank.facts.redaction import harmless
from whichrank.facts.redaction.marks import MARK, Marks
from whichrank.facts.redaction.randomness import CANDIDATE, is_random, likeness

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
        Token(r["kind"], r["keyword"], re.compile(r["pattern"]), r["source"]) for r in rows("secret_tokens.csv")
    )


_Q = r"(?:\\{0,3}[\"'`])"
_KEYWORD = (
    r"passw(?:or)?d|passwd|passphrase|passcode|passwort|kennwort|contrase\w|mot_?de_?passe|pwd|secret|token|credential|creds|"
    r"api[_.\- ]?key|(?:access|private|signing|encryption|storage|account|master|shared|service|client|app|ssh|"
    r"session|deploy|"
    r"hmac|aes|rsa|subscription|admin|auth|license|wandb|secret|public|root|user|db|database|identity|recovery|webhook|rest|"
    r"cluster|munge|ngc|comet|hub|team|org|project)[_.\- ]?key|authorization|bearer|cookie|session[_\-]?id|"
    r"sessionid|csrf|xsrf|"
    r"connection[_\-]?string|conn[_\-]?str|dsn|webhook|otp|jwt|keytab|seed[_\-]?phrase|mnemonic|(?<=[_\-.])(?:key|pass|pw|pat|sas|psk|auth|sig|pin)"
    r"|(?<![a-z])(?:pass|pw|psk|auth|sig|signature|pin|sas|pat)(?![a-z])|(?<=[a-z])(?-i:Key|Pass|Pwd|Auth|Sig)|(?<![a-z])key(?![a-z])"
)
_TAIL = r"[\w.\-]{0,40}"
_SIGNS = r"[ \t]{0,40}\s{0,4}(?::=|=>|={1,3}|:)\s{0,4}[ \t]{0,40}"
_QUOTED = (
    r"\\{0,3}\"(?P<q2>[^\"\r\n]{1,8192}?)\\{0,3}\"|\\{0,3}'(?P<q1>[^'\r\n]{1,8192}?)\\{0,3}'|`(?P<q3>[^`\r\n]{1,8192})`"
)
_BARE = r"(?P<bare>[^\s\"'`,;|<>()\[\]{}]{1,8192})"
_WORDS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "cred",
    "key",
    "authorization",
    "bearer",
    "cookie",
    "session",
    "csrf",
    "xsrf",
    "conn",
    "dsn",
    "webhook",
    "otp",
    "jwt",
    "seed",
    "mnemonic",
    "pw",
    "psk",
    "auth",
    "sig",
    "pin",
    "sas",
    "pat",
    "kennwort",
    "contrase",
    "mot_de",
    "motdepasse",
)
"""One of these is in every name of a secret."""
_SCHEMES = (
    "bearer",
    "basic ",
    "token ",
    "digest ",
    "negotiate ",
    "ntlm ",
    "apikey ",
    "api-key ",
    "splunk ",
    "genie",
    "key ",
)
_COMMANDS = (
    "sshpass", "mysql", "mariadb", "curl", "wget", "http", "redis-cli", "ldap", "docker login", "htpasswd", "ipmitool",
    "smbclient", "openssl", "login", "echo",
)  # fmt: skip
ASSIGNED = re.compile(
    rf"(?P<key>(?:{_KEYWORD}){_TAIL})(?P<sep>{_Q}?(?:\[\d*\])?\]?{_SIGNS})(?:{_QUOTED}|{_BARE})", re.IGNORECASE
)
ENV_LINE = re.compile(
    r"(?:^|(?<=[\n\0]))(?P<head>[ \t]{0,20}(?:export[ \t]+|set[ \t]+|setenv[ \t]+|declare -x[ \t]+|ENV[ \t]+|"
    r"Environment=\"?)?)"
    r"(?P<key>[A-Za-z_][A-Za-z0-9_.\-]{1,120})(?P<sep>[ \t]{0,40}[=:][ \t]{0,40}|[ \t]+(?=\S+$))"
    r"(?P<value>[^\r\n\0]{1,8192})"
)
FLAG = re.compile(
    rf"(?<![\w\-])(?P<key>--?[A-Za-z][\w.\-]{{1,60}})(?P<sep>=|{_Q}\s{{0,3}},\s{{0,3}}|[ \t]{{1,4}}(?:\\\n[ \t]*)?|\0)"
    rf"(?:{_QUOTED}|{_BARE})"
)
SAID = re.compile(
    r"(?P<key>passw(?:or)?d|passphrase|secret|token|api[ _\-]?key|pin|credentials?)(?P<sep>\s{1,3}(?:is|was|are|"
    r"set to|of|for [\w.@\-]{1,60} is)\s{0,3}:?\s{0,3})"
    rf"(?:{_QUOTED}|{_BARE})",
    re.IGNORECASE,
)
HEADER = re.compile(
    rf"(?P<key>(?:proxy-)?authorization|(?:set-)?cookie2?|x-[a-z\-]{{0,30}}(?:token|key|auth|secret|signature|session)[a-z\-]{{0,20}}|private-token"
    rf"|job-token)(?P<sep>{_Q}?\s{{0,3}}[:=,]\s{{0,3}}(?:b?{_Q})?)(?P<value>[^\r\n\"'`\0]{{1,8192}})",
    re.IGNORECASE,
)
SCHEME = re.compile(
    r"\b(?P<key>bearer|basic|token|digest|negotiate|ntlm|apikey|api-key|splunk|genie|key)(?P<sep>[ \t]{1,3}|%20|\+)"
    r"(?P<value>[A-Za-z0-9+/=._~\-]{8,8192})",
    re.IGNORECASE,
)
PLAIN = re.compile(
    r"(?i)(?P<key>\b(?:passw(?:or)?d|passphrase|passwd|pw|secret key))(?P<sep>[ \t]{1,3})(?P<value>[^\s\"'`,"
    r";]{6,200})(?=[\s\"'`,;)]|$)"
)
"""A word and a password behind it, without a sign between them."""
HTPASSWD = re.compile(
    r"(?P<head>\bhtpasswd\b[^\n]{0,100}?[ \t]-\w{0,8}b\w{0,8}[ \t]\S{1,200}[ \t])(?P<user>\S{1,128})[ \t]{1,4}"
    r"(?P<value>\S{1,256})"
)
PAIR = re.compile(
    r"(?i)(?P<head>(?:auth|credentials?|login|userpass|basic_auth)[\"']?\s{0,3}[=:]?\s{0,3}[\[(]{1,2})(?P<q>[\"'])(?P<user>[^\"'\n]{1,128})(?P=q)"
    r"(?P<sep>\s{0,3},\s{0,3})(?P<r>[\"'])(?P<value>[^\"'\n]{1,256})(?P=r)"
)
"""auth=("user", "password")."""
NAME_VALUE = re.compile(
    r"(?i)(?P<head>\bname[\"']?\s{0,3}[:=>]\s{0,3}[\"']?)(?P<key>[\w.\-]{2,100})(?P<sep>[\"']?(?:</name>)?\s{0,3},?\s{0,60}[<\"']?value[\"']?\s{0,3}[:=>]\s{0,3}[\"']?)"
    r"(?P<value>[^\s\"'<,][^\"'<\r\n]{0,4096})"
)
"""`name: DB_PASSWORD` and its value in the next line, as in Kubernetes."""
NETRC = re.compile(
    r"(?P<head>\b(?:login|user|account)\s{1,4})(?P<user>[^\s]{1,128})(?P<sep>\s{1,20}password\s{1,4})(?P<value>[^\s]{1,512})"
)
SHORT_FLAGS = re.compile(
    r"(?P<head>\b(?:sshpass\s{1,3}-p\s{0,3}|(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n]{0,200}?\s-p|(?:curl|"
    r"wget|http)\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]{1,3}"
    r"|(?:redis-cli)\b[^\n]{0,200}?\s-a\s{1,3}|(?:ldapsearch|ldapwhoami)\b[^\n]{0,200}?\s-w\s{1,3}|docker "
    r"login\b[^\n]{0,200}?\s-p\s{1,3}"
    r"|htpasswd\b[^\n]{0,100}?\s-b\w*\s\S+\s\S+\s|openssl\b[^\n]{0,200}?\s(?:-k\s|-K\s|-pass(?:in|out)"
    r"?\s(?:pass:)?)\s{0,3}|ipmitool\b[^\n]{0,200}?\s-P\s{1,3}|smbclient\b[^\n]{0,200}?\s-U\s{1,3}\S+%|wandb "
    r"login\s{1,3}(?:--relogin\s)?"
    r"|huggingface-cli login --token\s|echo\s{1,3}(?=\S+\s*\|\s*(?:sudo -S|passwd|docker login|wandb login|gh auth)))"
    r")(?P<value>[\"']?[^\s\"']{2,512}[\"']?)"
)
URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]{1,30}(?::[a-z0-9+]{2,20})?)(?P<sep>:\\?/\\?/)(?P<rest>[^\s\"'<>`\0]{1,8192})"
)
PEM_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9_\-]{0,60}-----|---- BEGIN SSH2[ A-Z0-9]{0,60} ----|PuTTY-User-Key-File-\d:")
PEM_END = re.compile(r"-----END[ A-Z0-9_\-]{0,60}-----|---- END SSH2[ A-Z0-9]{0,60} ----|Private-MAC:")
_PEM_ONE = re.compile(
    r"-----BEGIN(?P<what>[ A-Z0-9_\-]{0,60})-----(?P<body>[^\r\n]{1,200000}?)(?:-----END[ A-Z0-9_\-]{0,60}-----|"
    r"(?=[\"'\r\n]|$))"
)
_PEM_LINE = re.compile(r"[ \t>|#*\-+\[\]\w.:/]{0,80}?[A-Za-z0-9+/=\\]{4,}[ \t\"',\\n]{0,6}")
WEBHOOK = re.compile(
    r"hooks?\.|webhook|/hooks?/|discord(?:app)?\.com/api|api\.telegram\.org/bot|chat\.googleapis\.com|ifttt\.com|pagerduty\.com|"
    r"opsgenie\.com|feishu\.cn|larksuite\.com|weixin\.qq\.com|dingtalk\.com|logic\.azure\.com|ingest\.|hc-ping\.com|ntfy\.sh|healthchecks\.io",
    re.IGNORECASE,
)

# Words that make a name harmless although "token" or "key" is in it: parts of language models, stores, locks.
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NOT_A_TOKEN = frozenset(
    [
        "tokens",
        "tokenizer",
        "tokenized",
        "tokenize",
        "pad",
        "eos",
        "bos",
        "unk",
        "mask",
        "sep",
        "cls",
        "num",
        "max",
        "min",
        "per",
        "special",
        "image",
        "next",
        "stop",
        "count",
        "len",
        "length",
        "size",
        "type",
        "limit",
        "dim",
        "embeddings",
        "embedding",
        "budget",
        "seen",
        "throughput",
        "batch",
        "id",
        "ids",
        "idx",
        "index",
        "position",
        "positions",
        "prob",
        "logits",
        "dtype",
        "head",
        "heads",
        "states",
        "cache",
        "value",
        "values",
        "layer",
        "proj",
        "query",
        "rope",
        "padding",
        "layers",
        "weight",
        "weights",
        "bias",
        "dropout",
    ]
)
_STRONG = frozenset(
    [
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "passwort",
        "kennwort",
        "pwd",
        "secret",
        "secrets",
        "token",
        "credential",
        "credentials",
        "creds",
        "authorization",
        "bearer",
        "cookie",
        "cookies",
        "jwt",
        "apikey",
        "passwords",
        "dsn",
        "webhook",
        "otp",
        "psk",
        "mnemonic",
        "keytab",
        "sessionid",
        "csrf",
        "xsrf",
        "csrftoken",
        "sas",
        "pat",
        "pw",
        "pass",
    ]
)
_STRONG_PARTS = (
    "password", "passwd", "passphrase", "secret", "apikey", "credential", "connectionstring", "connstr", "authtoken",
    "accesstoken", "sessionid", "privatekey", "accesskey", "webhook",
)  # fmt: skip
_WEAK = frozenset(["key", "auth", "sig", "signature", "pin", "session"])
_EMPTY = re.compile(
    r"(?:none|null|nil|true|false|yes|no|on|off|unset|empty|undefined|redacted|removed|hidden|masked|str|string|bytes|int|optional|"
    r"\*{2,}|x{4,}|\.{3,}|<[^>]{0,40}>|\$[({]?[A-Za-z_][\w.]*[)}]?|%[A-Z_]+%|\[?(?:redacted|removed|masked|filtered|secret)\]?)[.,;:)]?",
    re.IGNORECASE,
)


def name_is_secret(name: str) -> str:
    """ "strong" for a name that says so, "weak" for one that may mean something else, "" for another."""
    if name.strip("-") in ("PWD", "OLDPWD"):
        return ""
    if name.strip("-") == "pwd":
        return "weak"  # a folder or a password: its value tells
    words = [word.lower() for word in _PARTS.findall(name)]
    joined = "".join(words)
    if any(word in _NOT_A_TOKEN for word in words) and not any(
        w in ("secret", "password", "passwd", "api", "access") for w in words
    ):
        return ""
    if any(word in _STRONG for word in words) or any(part in joined for part in _STRONG_PARTS):
        return "strong"
    if words[-1:] == ["key"] and len(words) > 1:
        return (
            "strong"
            if name.isupper() or words[-2] in ("access", "private", "signing", "encryption", "storage", "account")
            else "weak"
        )
    return "weak" if any(word in _WEAK for word in words) else ""


def worth_hiding(value: str, strength: str) -> bool:
    """Whether a value beside such a name is a secret: not empty, not a word that stands for nothing."""
    bare = MARK.sub("", value).strip("\"'`.,;:()[]{}<>")
    if not bare or _EMPTY.fullmatch(bare):
        return False
    if strength == "strong":
        return True
    # A name that may mean something else: only what is no word, number, path or identifier.
    word = re.fullmatch(r"[A-Za-z]+|[\d.,:%+/\-]+|\d+[a-zA-Z]{1,4}", bare)
    return len(bare) >= 6 and not word and not bare.startswith(("/", "0x", "./", "(", "<")) and likeness(bare) < 0.8


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
        marks.sub(_PEM_ONE, lambda m: f"-----BEGIN{m['what']}-----{hide('pem-block', m['body'])}")


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
    if (known and len(value) > 3 and not _EMPTY.fullmatch(value)) or (
        len(value) >= 8 and not plain and not harmless.is_common(value)
    ):
        return f"{name}={hide('url-parameter', value)}"
    return match.group()


def hide_named(marks: Marks, hide: Hide) -> None:
    marks.sub(HEADER, lambda m: _valued(m, hide, "header", "strong"), ("authorization", "cookie", "x-", "-token"))
    marks.sub(SCHEME, lambda m: _scheme(m, hide), _SCHEMES)
    marks.sub(ENV_LINE, lambda m: _env_line(m, hide), _WORDS)
    marks.sub(FLAG, lambda m: _assigned(m, hide, "flag"), _WORDS)
    marks.sub(ASSIGNED, lambda m: _assigned(m, hide, "assignment"), _WORDS)
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
    marks.sub(SHORT_FLAGS, lambda m: m["head"] + hide("password", m["value"]), _COMMANDS)


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
    for group in ("q2", "q1", "q3", "bare"):
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


def _env_line(match: re.Match[str], hide: Hide) -> str | None:
    """A line of an environment or of a settings file: the value is all that follows."""
    name, value = match["key"], match["value"]
    strength = name_is_secret(name)
    if not strength or not worth_hiding(value, strength) or (strength == "weak" and " " in value.strip()):
        return None
    spaced = match["sep"].strip() == "" or match["sep"].strip() == ":"
    if spaced and (" " in value.strip() or not name.replace("_", "").isalnum()) and strength != "strong":
        return None
    if spaced and " " in value.strip():  # prose: "Token: see the manual"
        return None
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
        or (bare.isalpha() and bare.islower() and group == "bare")
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
