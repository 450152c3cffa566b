"""A corpus that was written by somebody who had not seen the patterns: nothing of it survives."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from whichrank.flows.scrub import scrub

CORPUS = Path(__file__).parents[2] / "samples" / "scrub_blind.tar.xz"


def texts(name: str, data: bytes) -> Iterator[str]:
    """Whatever can be read in a file: names and contents, archives opened."""
    yield name
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from texts(member, archive.read(member))
    elif data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            for info in packed:
                content = packed.extractfile(info)
                yield from texts(info.name, content.read() if content else b"")
    else:
        yield data.decode("utf-16" if data[:2] == b"\xff\xfe" else "utf-8", "replace")


def test_nothing_of_the_blind_corpus_survives(tmp_path: Path) -> None:
    with tarfile.open(CORPUS) as packed:
        packed.extractall(tmp_path / "in", filter="data")
    plantings = json.loads((tmp_path / "in" / "plantings.json").read_text())
    assert len(plantings) >= 150
    before = "\0".join(_all(tmp_path / "in" / "evidence"))
    assert all(secret in before for _, secret in plantings)
    scrub(tmp_path / "in" / "evidence", tmp_path / "out", key=b"k" * 32)
    after = "\0".join(_all(tmp_path / "out"))
    leaked = [kind for kind, secret in plantings if secret in after or json.dumps(secret)[1:-1] in after]
    assert leaked == []


def _all(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from texts(str(path.relative_to(folder)), path.read_bytes())
