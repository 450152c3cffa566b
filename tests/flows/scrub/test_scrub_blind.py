"""Corpora that were written by people who had not seen the patterns: nothing of them survives."""

from __future__ import annotations

import bz2
import gzip
import html
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.flows.scrub import scrub

SAMPLES = Path(__file__).parents[2] / "samples"


def texts(name: str, data: bytes) -> Iterator[str]:
    """Whatever can be read in a file: names and contents, archives opened."""
    yield name
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    elif data[:6] == b"\xfd7zXZ\0":
        data = lzma.decompress(data)
    elif data[:3] == b"BZh":
        data = bz2.decompress(data)
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            for info in packed:
                content = packed.extractfile(info)
                yield info.uname
                yield from texts(info.name, content.read() if content else b"")
    elif zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from texts(member, archive.read(member))
    else:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")
        yield text
        yield html.unescape(text)
        yield data.decode("latin-1")


@pytest.mark.parametrize("corpus", ["scrub_blind", "scrub_blind_2", "scrub_blind_3"])
def test_nothing_of_the_blind_corpora_survives(tmp_path: Path, corpus: str) -> None:
    with tarfile.open(SAMPLES / f"{corpus}.tar.xz") as packed:
        packed.extractall(tmp_path / "in", filter="data")
    plantings = json.loads((tmp_path / "in" / "plantings.json").read_text())
    assert len(plantings) >= 150
    before = "\0".join(_all(tmp_path / "in" / "evidence"))
    assert [secret for _, secret in plantings if not _stands_in(before, secret)] == []
    scrub(tmp_path / "in" / "evidence", tmp_path / "out", key=b"k" * 32)
    after = "\0".join(_all(tmp_path / "out"))
    leaked = [kind for kind, secret in plantings if _stands_in(after, secret)]
    assert leaked == []


def _stands_in(text: str, secret: str) -> bool:
    """As it is, as JSON writes it, and as JSON in a string of JSON does."""
    once = json.dumps(secret)[1:-1]
    return any(form in text for form in (secret, once, json.dumps(once)[1:-1]))


def _all(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from texts(str(path.relative_to(folder)), path.read_bytes())
