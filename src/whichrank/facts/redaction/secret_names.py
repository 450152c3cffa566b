"""Which names say that their value is a secret, and which values are worth hiding."""

from __future__ import annotations

import re

from whichrank.facts.redaction.marks import MARK
from whichrank.facts.redaction.randomness import likeness

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
_ENDS = re.compile(r"(?<!by)(?<!com)(?<!tres)(?<!over)(?<!under)pass(?:wd|word|phrase)?$|pwd$")
"""How one word that says so ends: requirepass, dbpass, smtppwd."""
_WEAK = frozenset(["key", "auth", "sig", "signature", "pin", "session"])
EMPTY = re.compile(
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
    if any(word in _STRONG or _ENDS.search(word) for word in words) or any(part in joined for part in _STRONG_PARTS):
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
    if not bare or EMPTY.fullmatch(bare):
        return False
    if strength == "strong":
        return True
    # A name that may mean something else: only what is no word, number, path or identifier.
    word = re.fullmatch(r"[A-Za-z]+|[\d.,:%+/\-]+|\d+[a-zA-Z]{1,4}", bare)
    return len(bare) >= 6 and not word and not bare.startswith(("/", "0x", "./", "(", "<")) and likeness(bare) < 0.8
