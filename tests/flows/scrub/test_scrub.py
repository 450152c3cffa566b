"""Nothing that was planted survives, in any format; what helps a diagnosis does."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import stat
import tarfile
import zipfile
from pathlib import Path

import jsonschema
import pytest

import whichrank.report
from tests.flows.scrub.planted import HARMLESS, IDENTITIES, PRIVATE_KEY, SECRETS
from whichrank.evidence.bundle import Bundle, load
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.scrub import REPORT, scrub
from whichrank.model import last_words
from whichrank.model.errors import UsageError

SAMPLES = Path(__file__).parents[2] / "samples"
LINES = [line for line, _ in (*SECRETS.values(), *IDENTITIES.values())]
GONE = {**SECRETS, **IDENTITIES}
TEXT = "\n".join(LINES) + "\n" + PRIVATE_KEY + HARMLESS


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a copy, archives opened with the standard library."""
    found: dict[str, bytes] = {}

    def take(name: str, data: bytes) -> None:
        for opened in (gzip.decompress, bz2.decompress, lzma.decompress):
            try:
                data = opened(data)
                break
            except (OSError, EOFError, lzma.LZMAError, ValueError):
                continue
        if zipfile.is_zipfile(io.BytesIO(data)) and data[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for member in archive.namelist():
                    take(f"{name}/{member}", archive.read(member))
        elif data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for info in archive:
                    take(f"{name}/{info.name}", archive.extractfile(info).read())
        else:
            found[name] = data

    for path in folder.rglob("*"):
        if path.is_file():
            take(path.relative_to(folder).as_posix(), path.read_bytes())
    return found


def leaks(folder: Path) -> list[str]:
    files = contents(folder)
    everything = "\n".join([*files, *(data.decode("utf-8", "replace") for data in files.values())])
    everything += "\n".join(data.decode("utf-16-le", "replace") for data in files.values() if data[:2] == b"\xff\xfe")
    low = everything.lower()
    return [kind for kind, (_, planted) in GONE.items() if planted.lower() in low]


def scrubbed(source: Path, tmp_path: Path):
    out = tmp_path / "copy"
    return scrub(source, out, key=b"k" * 16), out


def test_nothing_survives_in_text(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "job.log").write_text(TEXT)
    _, out = scrubbed(tmp_path / "in", tmp_path)
    assert leaks(out) == []
    clean = (out / "job.log").read_text()
    assert clean.count("\n") == TEXT.count("\n"), "lines stay lines"
    assert "AQID" not in clean, "nor the short last line of a private key"
    for line in HARMLESS.splitlines()[1:]:
        assert line in clean


def forms(tmp_path: Path) -> Path:
    """The same lines in every format that a bundle holds."""
    folder = tmp_path / "in"
    folder.mkdir()
    raw = TEXT.encode()
    (folder / "a.log.gz").write_bytes(gzip.compress(raw))
    (folder / "b.log.xz").write_bytes(lzma.compress(raw))
    (folder / "c.log.bz2").write_bytes(bz2.compress(raw))
    (folder / "wide.txt").write_bytes(TEXT.encode("utf-16"))
    (folder / "wide_unmarked.txt").write_bytes(TEXT.encode("utf-16-be"))
    (folder / "environ").write_bytes(b"\0".join(line.encode() for line in LINES))
    (folder / "lines.json").write_text(json.dumps({"lines": LINES, "text": TEXT}))
    for protocol in range(6):
        dump = {
            "version": "2.10",
            "entries": [{"frames": [{"name": "f", "filename": line, "line": 3}]} for line in LINES],
            "text": TEXT,
        }
        (folder / f"fr_{protocol}").write_bytes(pickle.dumps(dump, protocol))
    with tarfile.open(folder / "logs.tar.gz", "w:gz") as archive:
        for name in ("home/mkowalski/quasar.log", "kite008/x.log"):
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    with zipfile.ZipFile(folder / "logs.zip", "w") as archive:
        archive.writestr("users/rjankovic/inner.log", raw)
        archive.writestr("nested.tar.gz", (folder / "logs.tar.gz").read_bytes())
    words = last_words.Words(
        pid=7, rank=1, place="/home/mkowalski/t.py:3 f", error="quasar: Pa55-w0rd! from 10.20.30.41"
    )
    (folder / "7.1.words").write_bytes(last_words.pack(words) + bytes(last_words.SLOT))
    return folder


def test_nothing_survives_in_any_format(tmp_path):
    folder = forms(tmp_path)
    (folder / "nodes" / "quasar.hpc.zeta-corp.com").mkdir(parents=True)
    (folder / "nodes" / "quasar.hpc.zeta-corp.com" / "mkowalski-10.20.30.41.log").write_text("fine\n")
    done, out = scrubbed(folder, tmp_path)
    assert leaks(out) == []
    assert done.left_out == []
    for protocol in range(6):
        again = pickle.loads((out / f"fr_{protocol}").read_bytes())
        assert len(again["entries"]) == len(LINES)
        assert again["entries"][0]["frames"][0]["line"] == 3
    words = last_words.newest((out / "7.1.words").read_bytes())
    assert (words.pid, words.rank) == (7, 1)
    assert words.place.endswith("/t.py:3 f")


def test_what_can_not_be_rewritten_is_left_out_and_listed(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.log").write_text("rank 0 is fine\n")
    (folder / "secret").write_text("hunter2")
    (folder / "link.log").symlink_to(folder / "secret")
    os.mkfifo(folder / "pipe")
    refused = {
        "net.pcap": b"\xd4\xc3\xb2\xa1" + bytes(40),
        "core": b"\x7fELF" + os.urandom(200),
        "runs.db": b"SQLite format 3\0" + bytes(99),
        "x.bin": os.urandom(4096),
        "id_rsa": b"key",
        "tls.pem": b"key",
        "mixed.log": b"plain text\n" + "wide text".encode("utf-16-le"),
    }
    for name, data in refused.items():
        (folder / name).write_bytes(data)
    done, out = scrubbed(folder, tmp_path)
    assert {path for path, _ in done.left_out} == {*refused, "link.log", "pipe"}
    assert sorted(path.name for path in out.iterdir()) == [REPORT, "secret", "x.log"]
    report = json.loads((out / REPORT).read_text())
    assert {entry["path"] for entry in report["left_out"]} == {*refused, "link.log", "pipe"}
    schema = Path(whichrank.report.__file__).parent / "schemas" / "scrub.schema.json"
    jsonschema.validate(report, json.loads(schema.read_text()))


def test_the_copy_is_private_and_never_written_over_anything(tmp_path):
    (tmp_path / "in" / "logs").mkdir(parents=True)
    (tmp_path / "in" / "logs" / "x.log").write_text("x\n")
    _, out = scrubbed(tmp_path / "in", tmp_path)
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    for taken in (out, tmp_path / "in" / "copy"):
        with pytest.raises(UsageError):
            scrub(tmp_path / "in", taken, key=b"k")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def run_folder(tmp_path: Path) -> Path:
    """What `run` leaves: the manifest is one folder down."""
    folder = tmp_path / "whichrank-run"
    bundle = Bundle(folder / "bundle", "quasar")
    bundle.manifest.hosts[0]["boot_id"] = "5f0c1a9e-1111-4e49-924a-ff40a5a788f2"
    dump = {"host": "quasar", "file": "/home/mkowalski/train.py", "address": "10.20.30.41", "loop": "127.0.0.1"}
    bundle.add("dumps/rank_0", pickle.dumps(dump, 2), "flight recorder", rank=0)
    bundle.add("logs/quasar.out.log", b"quasar.zeta-corp.com: QUASAR 10.20.30.41\n", "output")
    bundle.add("host/net.pcap", b"\xd4\xc3\xb2\xa1" + bytes(40), "packets")
    bundle.close()
    (folder / "run.json").write_text('{"host": "quasar"}')
    (folder / "verdict.json").write_text('{"summary": "rank 0 on quasar"}')
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_the_manifest_fits_the_copy(tmp_path, packed):
    source = run_folder(tmp_path)
    if packed:
        with tarfile.open(tmp_path / "run.tar.gz", "w:gz") as archive:
            archive.add(source, "run")
        source = tmp_path / "run.tar.gz"
    _, out = scrubbed(source, tmp_path)
    root = out / "run" if packed else out
    content = load(root / "bundle")
    assert content["hosts"][0]["name"] == "host-0001"
    assert [file["path"] for file in content["files"]] == ["dumps/rank_0", "logs/host-0001.out.log"]
    for file in content["files"]:
        assert file["sha256"] == hashlib.sha256((root / "bundle" / file["path"]).read_bytes()).hexdigest()
    assert any("packet capture" in gap["why"] for gap in content["missing"])
    log = (root / "bundle/logs/host-0001.out.log").read_text()
    dump = pickle.loads((root / "bundle/dumps/rank_0").read_bytes())
    assert log.startswith("host-0001.domain-1.example: host-0001 ")
    assert (dump["host"], dump["loop"]) == ("host-0001", "127.0.0.1")
    assert dump["address"] in log
    assert json.loads((root / "run.json").read_text()) == {"host": "host-0001"}


def told(diagnosis):
    verdict = diagnosis.verdict
    code = [(Path(place.file).name, place.line, place.function) for place in verdict.culprits.code]
    found = sorted(finding.code for finding in diagnosis.findings)
    return (
        verdict.category,
        verdict.cause,
        verdict.culprits.ranks,
        verdict.victims,
        len(verdict.culprits.hosts),
        code,
        found,
    )


def cases(archive: str, depth: int, tmp_path: Path) -> list[Path]:
    with tarfile.open(SAMPLES / archive) as opened:
        opened.extractall(tmp_path / "all", filter="data")
    return sorted(path for path in (tmp_path / "all").glob("/".join("*" * depth)) if path.is_dir())


def check_same(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / folder.name
    scrub(folder, out, key=b"k" * 16)
    assert told(diagnose([out], jobs=1)) == told(diagnose([folder], jobs=1)), folder


@pytest.mark.parametrize(
    "name",
    [
        "gloo_waits/send_left_out",
        "crashes/sigkill",
        "torch_output/conditional",
        "flight_recorder/gloo_skip",
        "nccl/conditional",
        "bundle",
    ],
)
def test_the_copy_gives_the_same_verdict(name, tmp_path):
    check_same(SAMPLES / name, tmp_path)


@pytest.mark.bars
@pytest.mark.parametrize(
    ("archive", "depth"),
    [
        ("drills_nccl.tar.xz", 2),
        ("nccl_faults.tar.gz", 2),
        ("network.tar.gz", 2),
        ("run_nccl.tar.gz", 2),
        ("run_nccl_full.tar.gz", 2),
    ],
)
def test_every_recorded_bundle_gives_the_same_verdict(archive, depth, tmp_path):
    found = cases(archive, depth, tmp_path)
    assert found
    for folder in found:
        check_same(folder, tmp_path)


def test_scrubbing_again_changes_nothing_more(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "job.log").write_text(
        HARMLESS + "quasar:1:2 [0] NCCL INFO x\nDB_PASSWORD=hunter2\n/home/mkowalski/x\n"
    )
    _, once = scrubbed(tmp_path / "in", tmp_path)
    scrub(once, tmp_path / "twice", key=b"k" * 16)
    assert (tmp_path / "twice" / "job.log").read_text() == (once / "job.log").read_text()
