from __future__ import annotations

import io
import os
import tarfile

import pytest

from whichrank.evidence.intake import claim, claims, collect, discover_readers
from whichrank.evidence.packed import Limits
from whichrank.model.contracts import Item, Reading
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.report import load


def labels(intake):
    return [item.label for item in intake.items]


def notes(intake):
    return {source.path: source.note for source in intake.refused}


@pytest.fixture
def folder(tmp_path):
    for name in ("node1/fr_0", "node1/fr_1", "node2/logs/rank3/stderr.log"):
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "run"


def test_a_folder_is_walked_in_stable_order(folder):
    with collect([folder]) as intake:
        assert labels(intake) == ["node1/fr_0", "node1/fr_1", "node2/logs/rank3/stderr.log"]
        assert [item.read().decode() for item in intake.items] == labels(intake)
        assert intake.refused == []


def test_labels_are_relative_to_what_all_paths_share(folder):
    with collect([folder / "node1" / "fr_1"]) as intake:
        assert labels(intake) == ["fr_1"]
    with collect([folder / "node2", folder / "node1"]) as intake:
        assert labels(intake) == ["node2/logs/rank3/stderr.log", "node1/fr_0", "node1/fr_1"]
    with collect([folder / "node1" / "fr_0", folder / "node1" / "fr_1"]) as intake:
        assert labels(intake) == ["fr_0", "fr_1"]


def test_a_file_given_twice_is_read_once(folder):
    with collect([folder, folder / "node1", folder / "node1" / "fr_0"]) as intake:
        assert len(intake.items) == 3


def test_links_lead_to_files_inside_only(folder, tmp_path):
    (tmp_path / "secret").write_text("not part of the evidence")
    (folder / "outside").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder)
    (folder / "latest").symlink_to(folder / "node1" / "fr_0")
    with collect([folder]) as intake:
        assert sorted(labels(intake)) == ["latest", "node1/fr_1", "node2/logs/rank3/stderr.log"]
        assert notes(intake) == {"outside": "a link to a place outside the folder"}


def test_a_link_that_the_user_names_is_followed(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    with collect([tmp_path / "link"]) as intake:
        assert len(intake.items) == 3


def test_special_and_empty_files_are_left_aside_with_a_note(folder):
    os.mkfifo(folder / "pipe")
    (folder / "nothing").touch()
    with collect([folder]) as intake:
        assert len(intake.items) == 3
        assert notes(intake) == {"pipe": "not a plain file", "nothing": "an empty file"}


def test_what_is_no_evidence_is_left_aside_with_a_note(folder):
    for name in ("truth.yaml", "truth.json", "README.md", "ORIGIN"):
        (folder / name).write_text("x")
    nothing = Diagnosis(Verdict("unknown", "unknown", Subject(), (), 0.0, "Nothing was found."))
    for name, form in (("verdict.json", "json"), ("report.md", "markdown"), ("saved.html", "html")):
        (folder / name).write_text("".join(load(form).render(nothing)))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("x")
    with collect([folder]) as intake:
        assert len(intake.items) == 3
        assert set(notes(intake)) == {
            "truth.yaml",
            "truth.json",
            "verdict.json",
            "report.md",
            "saved.html",
            "README.md",
            "ORIGIN",
        }
        assert {source.quality for source in intake.refused} == {"ignored"}


def test_what_a_person_calls_a_report_is_evidence(tmp_path):
    (tmp_path / "report.md").write_text("# Training hangs\n\nRank 3 stands in all_reduce.\n")
    (tmp_path / "verdict.json").write_text('{"mine": 1}')
    with collect([tmp_path]) as intake:
        assert sorted(item.label for item in intake.items) == ["report.md", "verdict.json"]


def test_depth_and_count_are_bounded(folder):
    deep = folder.joinpath(*["d"] * 10)
    deep.mkdir(parents=True)
    (deep / "fr_9").write_text("x")
    with collect([folder], limits=Limits(depth=5)) as intake:
        assert len(intake.items) == 3
        assert notes(intake) == {"d/d/d/d/d": "more than 5 folders deep"}
    with collect([folder], limits=Limits(files=2)) as intake:
        assert len(intake.items) == 2
        assert "more than 2 files" in next(iter(notes(intake).values()))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_noted(folder):
    (folder / "node1").chmod(0)
    try:
        with collect([folder]) as intake:
            assert "can't be listed" in notes(intake)["node1"]
    finally:
        (folder / "node1").chmod(0o700)


def test_names_of_any_bytes_can_be_reported(folder):
    (folder / os.fsdecode(b"fr_\xff")).write_text("x")
    with collect([folder]) as intake:
        assert "fr_\\udcff" in labels(intake)


def test_pasted_text_is_one_item():
    with collect(["-"], stdin=io.BytesIO(b"[rank3]: Watchdog caught\n")) as intake:
        assert labels(intake) == ["stdin"]
        assert intake.items[0].read().startswith(b"[rank3]")


def test_archives_are_opened_and_removed_afterwards(folder, tmp_path):
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname="run")
    with collect([tmp_path / "bundle.tar.gz"]) as intake:
        assert labels(intake) == [
            "bundle.tar.gz/run/node1/fr_0",
            "bundle.tar.gz/run/node1/fr_1",
            "bundle.tar.gz/run/node2/logs/rank3/stderr.log",
        ]
        paths = [item.path for item in intake.items]
        assert all(path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0 for path in paths)
    assert not any(path.exists() for path in paths)
    assert not paths[0].parent.exists()


def test_unpacked_files_are_removed_after_an_error(folder, tmp_path):
    with tarfile.open(tmp_path / "bundle.tar", "w") as archive:
        archive.add(folder, arcname="run")
    places = []

    def interrupted() -> None:
        with collect([tmp_path / "bundle.tar"]) as intake:
            places.append(intake.items[0].path.parent)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not places[0].exists()


class Marked:
    """A reader that knows files by one word."""

    def __init__(self, name: str, word: bytes) -> None:
        self.NAME, self.word = name, word

    def sniff(self, head: bytes, name: str) -> bool:
        return self.word in head or name == "stderr.log"

    def read(self, item: Item) -> Reading:
        return Reading()


def test_the_first_reader_that_knows_a_file_claims_it(folder):
    readers = [Marked("one", b"fr_0"), Marked("two", b"fr_")]
    with collect([folder]) as intake:
        first, second, third = intake.items
        assert [r.NAME for r in claims(first, readers)] == ["one", "two"]
        assert claim(second, readers).NAME == "two"
        assert [r.NAME for r in claims(third, readers)] == ["one", "two"]
        assert claim(Item(first.path, "x", 1, 0), [Marked("three", b"absent")]) is None


def test_readers_are_found_in_stable_order_and_keep_their_contract():
    found = discover_readers()
    names = [reader.NAME for reader in found]
    assert names == sorted(names, key=lambda name: (-len(name.split("_")), name))
    assert len(set(names)) == len(names)
    for reader in found:
        assert reader.sniff(b"", "") is False
        assert reader.sniff(os.urandom(64), "photo.jpg") is False
