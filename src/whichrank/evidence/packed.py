"""What is compressed or an archive, by its first bytes; and how much of it is taken in. What opens it is elsewhere."""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec import Struct

MIB = 1 << 20
MAGIC = {
    b"\x1f\x8b": "gz",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zst",
}
LONGEST_MAGIC = max(map(len, MAGIC))
# Zip files that are something else: models, arrays, packages, office documents.
NOT_BUNDLES = {".pt", ".pth", ".ckpt", ".npz", ".whl", ".egg", ".jar", ".docx", ".xlsx", ".pptx", ".apk"}


class Limits(Struct, frozen=True):
    """How much is taken in at the most."""

    files: int = 200_000
    """Files and archive members together; 16,384 ranks with ten files each."""
    depth: int = 40
    """Folders within folders."""
    unpacked: int = 16 << 30
    ratio: int = 400
    """Written bytes per archive byte; NCCL logs of many like lines reach 41 (zstd -19), bombs thousands."""
    ratio_from: int = 64 * MIB
    """Small archives may have any ratio."""
    nesting: int = 2
    """An archive, and one archive inside another."""
    directory: int = 64 * MIB
    """Size of a zip file's table of contents, about 500,000 members."""


def compression(head: bytes) -> str:
    """`gz`, `xz`, `bz2`, `zst`, or nothing, by the first bytes."""
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")


def is_archive(head: bytes, name: str) -> bool:
    """Whether these first bytes begin an archive or a compressed file that is worth opening."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return PurePosixPath(name).suffix.lower() not in NOT_BUNDLES
    return bool(compression(head)) or is_tar(head, name)


def is_tar(head: bytes, name: str) -> bool:
    return head[257:262] == b"ustar" or (name.lower().endswith(".tar") and len(head) == 512)


def printable(label: str) -> str:
    """A name that any output can hold; names on disk may be any bytes."""
    return label.encode("utf-8", "backslashreplace").decode("utf-8")
