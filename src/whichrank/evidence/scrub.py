"""Make a bundle safe to share: names of hosts and users, addresses and secrets become others of the same length.

The same length, because dumps are pickles whose texts carry their length: they stay readable. The same name becomes
the same other name everywhere, so that what belongs together still does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from whichrank.evidence.bundle import load
from whichrank.model.errors import UsageError
from whichrank.model.manifest import NAME

MOST = 512 << 20
_ADDRESS = re.compile(rb"(?<![\d.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d.])")
_HOME = re.compile(rb"/(?:home|Users)/([A-Za-z0-9._-]{1,64})(?=[/\s\"':]|$)")
_MAIL = re.compile(rb"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,64}\.[A-Za-z0-9.-]{2,64}")
_SECRET = re.compile(
    rb"(?:hf_|ghp_|gho_|sk-|AKIA|xox[bap]-)[\w-]{8,200}"
    rb"|(?i:(?:token|secret|password|passwd|api_?key)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)([^\s\"',;]{4,200})"
    rb"|(?<=://)[^/\s:@]{1,100}:[^/\s@]{1,200}(?=@)"
)
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


class Scrubber:
    """Turns bytes into bytes of the same length, always the same way for one key."""

    def __init__(self, names: Iterable[str], key: bytes) -> None:
        self.key = key
        known = sorted({name.encode() for name in names if len(name) > 1}, key=len, reverse=True)
        # In a pickle the opcode that remembers a text (q or r) follows right after it.
        words = b"|".join(re.escape(name) for name in known)
        self.names = (
            re.compile(rb"(?<![A-Za-z0-9_])(?:" + words + rb")(?:(?![A-Za-z0-9_])|(?=[qr]))") if known else None
        )
        self.changed = 0

    def __call__(self, data: bytes) -> bytes:
        data = self.without_secrets(data)
        data = _MAIL.sub(lambda m: self._mask(m.group()), data)
        data = _ADDRESS.sub(self._address, data)
        if self.names is not None:
            data = self.names.sub(lambda m: self._letters(m.group()), data)
        return data

    def without_secrets(self, data: bytes) -> bytes:
        """Keys, tokens and passwords masked, and nothing else."""
        return _SECRET.sub(self._secret, data)

    def _digest(self, word: bytes) -> bytes:
        self.changed += 1
        return hashlib.blake2b(word.lower(), key=self.key, digest_size=64).digest()

    def _letters(self, word: bytes) -> bytes:
        digest = self._digest(word)
        return bytes(char if char in b"-._" else _LETTERS[digest[at % 64] % 26] for at, char in enumerate(word))

    def _mask(self, word: bytes) -> bytes:
        self.changed += 1
        return b"x" * len(word)

    def _secret(self, match: re.Match[bytes]) -> bytes:
        inner = match[1]
        if inner is None:
            return self._mask(match.group())
        head = match.group()[: match.start(1) - match.start()]
        return head + self._mask(inner)

    def _address(self, match: re.Match[bytes]) -> bytes:
        parts = match.groups()
        # Loopback and "any" say nothing about anybody; numbers above 255 are no address.
        if parts[0] in (b"127", b"0") or any(int(part) > 255 for part in parts):
            return match.group()
        digest = self._digest(match.group())
        ranges = {1: (0, 10), 2: (10, 90), 3: (100, 156)}
        shown = []
        for at, part in enumerate(parts):
            low, span = ranges[len(part)]
            shown.append(str(low + digest[at] % span).encode())
        return b".".join(shown)


def scrub(bundle: Path, out: Path, *, key: bytes) -> int:
    """Write a copy without names; returns how many places were changed."""
    if not bundle.is_dir():
        raise UsageError(f"'{bundle}' is no folder", "Give the folder of a bundle (unpack an archive first).")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"'{out}' is not empty", "Give --out a folder that does not exist yet.")
    files = [path for path in sorted(bundle.rglob("*")) if path.is_file() and not path.is_symlink()]
    clean = Scrubber(_names(bundle, files), key)
    digests = {}
    for path in files:
        if path.name == NAME:
            continue
        with path.open("rb") as stream:
            data = clean(stream.read(MOST))
        relative = path.relative_to(bundle)
        target = out / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        digests[relative.as_posix()] = hashlib.sha256(data).hexdigest()
    _manifest(bundle, out, clean, digests)
    return clean.changed


def _names(bundle: Path, files: Iterable[Path]) -> set[str]:
    """Hosts by the manifest, users by the home folders that the files speak of."""
    hosts = load(bundle).get("hosts")
    names = {str(host.get("name")) for host in hosts if isinstance(host, dict)} if isinstance(hosts, list) else set()
    names |= {name.split(".")[0] for name in names}
    for path in files:
        with path.open("rb") as stream:
            names |= {found.decode() for found in _HOME.findall(stream.read(MOST))}
    return names - {"localhost", "None", "root"}


def _manifest(bundle: Path, out: Path, clean: Scrubber, digests: dict[str, str]) -> None:
    content = load(bundle)
    if not content:
        return
    for file in content.get("files", []):
        if isinstance(file, dict) and file.get("path") in digests:
            file["sha256"] = digests[file["path"]]
    content["redaction"] = "names of hosts and users, addresses and secrets replaced by others of the same length"
    text = json.dumps(content, indent=2).encode()
    digest = re.compile(rb'("sha256": ")([0-9a-f]{64})')
    kept = iter(digest.findall(text))
    cleaned = digest.sub(lambda _: b"".join(next(kept)), clean(text))
    (out / NAME).write_bytes(cleaned + b"\n")
