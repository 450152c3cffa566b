"""What a file is, by its first bytes; what nobody can rewrite is left out."""

from __future__ import annotations

import codecs
import re
from pathlib import PurePosixPath

from whichrank.evidence.packed import NOT_BUNDLES, compression, is_tar
from whichrank.evidence.scrubbing.pickle_strings import looks_like_pickle
from whichrank.model.last_words import MAGIC as WORDS

ARCHIVES = ("zip", "tar")
COMPRESSED = ("gz", "xz", "bz2", "zst")
TEXTS = {
    "text": "utf-8",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "utf-32-le": "utf-32-le",
    "utf-32-be": "utf-32-be",
}

_BINARY = {
    b"SQLite format 3\0": "an SQLite database",
    b"\xd4\xc3\xb2\xa1": "a packet capture",
    b"\xa1\xb2\xc3\xd4": "a packet capture",
    b"\x4d\x3c\xb2\xa1": "a packet capture",
    b"\xa1\xb2\x3c\x4d": "a packet capture",
    b"\x0a\x0d\x0d\x0a": "a packet capture",
    b"\x7fELF": "a core file or a program",
    b"MZ": "a program",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"%PDF": "a PDF document",
    b"\x93NUMPY": "an array of numpy",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x1f\x9d": "compressed by compress(1)",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"!<arch>\n": "an ar archive",
    b"070701": "a cpio archive",
    b"LZIP": "compressed by lzip",
}
_KEEPERS = re.compile(
    r"(?i)(?:^|.*\.)(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|keytab|ovpn|htpasswd|netrc|pgpass|git-credentials|dockercfg|kube)$"
    r"|^(?:id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|known_hosts|authorized_keys|shadow-?|gshadow|munge\.key|credentials(?:\.(?:json|csv|db))?"
    r"|service[_\-]account.*\.json|application_default_credentials\.json|kubeconfig|\.?(?:bash|zsh|python|psql|mysql)_history"
    r"|cookies\.(?:txt|sqlite)|krb5cc_.*|secrets?\.(?:ya?ml|json|toml|env)|\.env(?:\.[\w\-]+)?)$"
)


def keeps_secrets(name: str) -> bool:
    """A file that exists to hold secrets: nothing in it helps a diagnosis."""
    return _KEEPERS.match(name) is not None


def kind_of(head: bytes, name: str) -> tuple[str, str]:
    """The kind, and why it must be left out ("" where it need not)."""
    if not head:
        return "text", ""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        refused = PurePosixPath(name).suffix.lower() in NOT_BUNDLES
        return "zip", "a model, a package or an office document" if refused else ""
    if packed := compression(head):
        return packed, ""
    if is_tar(head[:512], name):
        return "tar", ""
    if head.startswith(WORDS):
        return "words", ""
    for magic, what in _BINARY.items():
        if head.startswith(magic) and not (len(magic) < 3 and head[:64].isascii() and head[:64].decode().isprintable()):
            return "binary", what
    if looks_like_pickle(head):
        return "pickle", ""
    encoding = wide_encoding(head)
    return encoding or "text", ""


def wide_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32, by its mark or by the zeros between letters; "" for neither."""
    for mark, name in (
        (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):  # fmt: skip
        if head.startswith(mark):
            return name
    sample = head[:4096][: len(head[:4096]) // 4 * 4]
    if len(sample) < 8:
        return ""
    zeros = [sample[at::4].count(0) / (len(sample) // 4) for at in range(4)]
    full = [share < 0.2 for share in zeros]
    empty = [share > 0.8 for share in zeros]
    if full[0] and all(empty[1:]):
        return "utf-32-le"
    if full[3] and all(empty[:3]):
        return "utf-32-be"
    if full[0] and full[2] and empty[1] and empty[3]:
        return "utf-16-le"
    if full[1] and full[3] and empty[0] and empty[2]:
        return "utf-16-be"
    return ""
