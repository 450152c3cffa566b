from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import command_environment
from whichrank.evidence.intake import collect
from whichrank.evidence.packed import MIB, Limits

FILES = {"node1/fr_0": b"zero" * 1000, "node1/fr_1": b"one" * 70_000, "job.log": os.urandom(5000)}
COMPRESS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def tar_of(files: dict[str, bytes], mtime: int = 1_700_000_000) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), mtime
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def taken(path, **limits):
    """What comes out of an archive, and the notes."""
    with collect([path], limits=Limits(**limits)) as intake:
        content = {item.label.removeprefix(f"{path.name}/"): item.read() for item in intake.items}
        assert all(item.size == len(item.read()) for item in intake.items)
        return content, {source.path: (source.quality, source.note) for source in intake.refused}


@pytest.mark.parametrize("kind", ["", *COMPRESS])
def test_tar(tmp_path, kind):
    packed = tar_of(FILES)
    # The suffix does not matter, the content does.
    path = tmp_path / "bundle"
    path.write_bytes(COMPRESS[kind](packed) if kind else packed)
    assert taken(path) == (FILES, {})


def test_zip(tmp_path):
    path = tmp_path / "bundle.zip"
    path.write_bytes(zip_of(FILES))
    assert taken(path) == (FILES, {})


@pytest.mark.parametrize("kind", COMPRESS)
def test_single_compressed_files_keep_their_name(tmp_path, kind):
    path = tmp_path / f"fr_0.{kind}"
    path.write_bytes(COMPRESS[kind](FILES["node1/fr_1"]))
    assert taken(path) == ({f"fr_0.{kind}": FILES["node1/fr_1"]}, {})


def test_several_streams_in_one_file_are_one(tmp_path):
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"first\n") + gzip.compress(b"second\n"))
    assert taken(path)[0] == {"job.log.gz": b"first\nsecond\n"}


def test_members_keep_their_time(tmp_path):
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of(FILES, mtime=1_700_000_123))
    with collect([path]) as intake:
        assert {item.mtime_ns for item in intake.items} == {1_700_000_123 * 10**9}


def test_an_archive_inside_another_is_opened_and_a_third_is_not(tmp_path):
    inner = gzip.compress(tar_of({"fr_0": b"dump"}))
    path = tmp_path / "all.tar"
    path.write_bytes(tar_of({"node1.tgz": inner, "deep.tar": tar_of({"node2.tgz": inner})}))
    content, notes = taken(path)
    assert content == {"node1.tgz/fr_0": b"dump"}
    assert notes == {"all.tar/deep.tar/node2.tgz": ("ignored", "more than 2 archives inside one another")}


def test_links_devices_and_places_outside_are_refused(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, target in [
            ("link", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard", tarfile.LNKTYPE, "good"),
            ("device", tarfile.CHRTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("../escape", tarfile.REGTYPE, ""),
            ("a/../../escape", tarfile.REGTYPE, ""),
            ("/etc/absolute", tarfile.REGTYPE, ""),
            ("good", tarfile.REGTYPE, ""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            info.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"data"))
    path = tmp_path / "evil.tar"
    path.write_bytes(out.getvalue())
    content, notes = taken(path)
    assert content == {"good": b"data"}
    assert len(notes) == 7
    assert all(quality == "ignored" and note.startswith("refused") for quality, note in notes.values())
    assert list(tmp_path.iterdir()) == [path]


def test_zip_links_and_places_outside_are_refused(tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("../escape", b"x")
        archive.writestr("C:\\windows", b"x")
        archive.writestr("good", b"x")
    content, notes = taken(path)
    assert content == {"good": b"x"}
    assert len(notes) == 3


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2", "zst"])
def test_bombs_are_left_early(tmp_path, kind):
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[kind](bytes(80 * MIB)))
    content, notes = taken(path, ratio_from=8 * MIB, ratio=10)
    assert content == {}
    assert "bomb" in notes["bomb"][1]


def test_a_bomb_inside_an_archive_keeps_what_came_before(tmp_path):
    path = tmp_path / "bundle.zip"
    path.write_bytes(zip_of({"fr_0": b"dump", "zeros": bytes(80 * MIB), "after": b"x"}))
    content, notes = taken(path, ratio_from=8 * MIB, ratio=10)
    assert content == {"fr_0": b"dump"}
    assert notes["bundle.zip"][0] == "partial"


def test_total_size_and_members_are_bounded(tmp_path):
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of({f"f{number}": bytes(1000) for number in range(50)}))
    content, notes = taken(path, files=20)
    assert len(content) == 20
    assert "more than 20 members" in notes["bundle.tar"][1]
    content, notes = taken(path, unpacked=10_000)
    assert len(content) == 10
    assert "too large" in notes["bundle.tar"][1]


def test_a_header_of_gigabytes_is_not_held_in_memory(tmp_path):
    """A pax header that says it is 2 GiB long, compressed to 2 MB."""
    info = tarfile.TarInfo("PaxHeaders/x")
    info.type, info.size = tarfile.XHDTYPE, 2 << 30
    zeros = zstandard.ZstdCompressor().compressobj()
    path = tmp_path / "header.tar.zst"
    with path.open("wb") as out:
        out.write(zeros.compress(info.tobuf()))
        for _ in range(512):
            out.write(zeros.compress(bytes(4 * MIB)))
        out.write(zeros.flush())
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "from pathlib import Path\n"
        "from whichrank.evidence.intake import collect\n"
        "with collect([Path(sys.argv[1])]) as intake: print(intake.refused[0].note)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        timeout=120,
        env=command_environment(),
        check=True,
    )
    assert "header of unreasonable size" in done.stdout


def test_a_zip_with_an_endless_table_of_contents_is_refused(tmp_path):
    packed = bytearray(zip_of({"fr_0": b"dump"}))
    end = packed.rfind(b"PK\x05\x06")
    struct.pack_into("<I", packed, end + 12, 1 << 31)
    path = tmp_path / "bundle.zip"
    path.write_bytes(packed)
    assert "table of contents" in taken(path)[1]["bundle.zip"][1]


def test_checkpoints_are_not_unpacked(tmp_path):
    packed = zip_of({"archive/data.pkl": b"x", "archive/data/0": b"weights"})
    (tmp_path / "model.pt").write_bytes(packed)
    (tmp_path / "step_100").write_bytes(packed)
    content, notes = taken(tmp_path)
    assert set(content) == {"model.pt"}
    assert notes["step_100"] == ("ignored", "a PyTorch checkpoint, not evidence")


def test_encrypted_members_are_noted(tmp_path):
    packed = bytearray(zip_of({"fr_0": b"dump"}))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.find(magic) + offset] |= 1
    path = tmp_path / "secret.zip"
    path.write_bytes(packed)
    assert taken(path) == ({}, {"secret.zip/fr_0": ("ignored", "encrypted")})


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_a_cut_file_is_read_to_the_cut(tmp_path, kind):
    noise = random.Random(1).randbytes(1_000_000)
    # bz2 can only give whole blocks: the smallest, of 100 kB.
    whole = bz2.compress(noise, 1) if kind == "bz2" else COMPRESS[kind](noise)
    path = tmp_path / f"job.log.{kind}"
    path.write_bytes(whole[: len(whole) // 2])
    content, notes = taken(path)
    (got,) = content.values()
    assert noise.startswith(got)
    assert len(got) > 300_000
    assert notes[path.name][0] == "partial"


def test_a_cut_archive_gives_the_members_before_the_cut(tmp_path):
    files = {f"fr_{number}": os.urandom(50_000) for number in range(4)}
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(gzip.compress(tar_of(files))[:120_000])
    content, notes = taken(path)
    assert content["fr_0"] == files["fr_0"]
    assert "fr_3" not in content
    assert any(quality == "partial" for quality, _ in notes.values())


BASES = [
    tar_of(FILES),
    zip_of(FILES),
    gzip.compress(tar_of(FILES)),
    lzma.compress(tar_of({"a": b"b" * 500})),
    zstandard.ZstdCompressor().compress(tar_of({"a": b"b" * 500})),
    bz2.compress(b"text" * 500),
]


@pytest.mark.fuzz
@given(
    base=st.sampled_from(BASES),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=12),
    cut=st.integers(0, 1 << 20),
)
def test_damaged_archives_never_raise(tmp_path_factory, base, changes, cut):
    data = bytearray(base[: cut % (len(base) + 1)] if cut % 3 == 0 else base)
    for place, value in changes:
        if data:
            # Headers are where damage matters most.
            data[place % min(len(data), 600 if place % 2 else len(data))] = value
    path = tmp_path_factory.mktemp("fuzz") / "damaged"
    path.write_bytes(data)
    content, notes = taken(path, unpacked=32 * MIB)
    assert content or notes


def labels(path):
    with collect([path]) as intake:
        return [item.label.rsplit("/", 1)[-1] for item in intake.items], [source.note for source in intake.refused]


def test_a_zip_member_without_a_name_costs_itself_alone(tmp_path):
    data = zip_of({"aaaa": b"first", "good.log": b"second"}).replace(b"aaaa", b"\0\0\0\0")
    # The name's length is put to zero in both headers; its bytes become the extra field.
    local, central = data.find(b"PK\x03\x04"), data.find(b"PK\x01\x02")
    patched = bytearray(data)
    patched[local + 26 : local + 30] = struct.pack("<HH", 0, 4)
    patched[central + 28 : central + 32] = struct.pack("<HH", 0, 4)
    (tmp_path / "bundle.zip").write_bytes(bytes(patched))
    (tmp_path / "job.log").write_text("step 1\n")
    names, notes = labels(tmp_path)
    assert set(names) == {"good.log", "job.log"}
    assert any("without a name" in note for note in notes)


def test_a_tar_member_of_negative_size_is_refused(tmp_path):
    data = bytearray(tar_of({"a.log": b"x" * 600, "b.log": b"y"}))
    data[124:136] = b"\xff" * 12  # base-256: -1
    checksum = sum(data[:148]) + 8 * 32 + sum(data[156:512])
    data[148:156] = f"{checksum:06o}\0 ".encode()
    (tmp_path / "bundle.tar.bz2").write_bytes(bz2.compress(bytes(data)))
    (tmp_path / "job.log").write_text("step 1\n")
    names, notes = labels(tmp_path)
    assert names == ["job.log"]
    assert notes != []


def test_a_zip64_record_in_a_comment_is_believed_in_its_size(tmp_path):
    data = zip_of({"a.log": b"first"})
    fake = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, 192 << 20, 0)
    patched = bytearray(data + fake)
    end = data.rfind(b"PK\x05\x06")
    patched[end + 20 : end + 22] = struct.pack("<H", len(fake))
    (tmp_path / "bundle.zip").write_bytes(bytes(patched))
    names, notes = labels(tmp_path)
    assert names == []
    assert any("table of contents" in note for note in notes)
