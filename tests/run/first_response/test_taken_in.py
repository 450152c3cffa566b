"""What comes back from nodes is hostile: sizes, names and documents are checked."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from whichrank.cli.main import run
from whichrank.fleet.fetch import Answer
from whichrank.model.errors import UsageError
from whichrank.run.first_response import everywhere
from whichrank.run.first_response.everywhere import Gathered, Node

TOKEN = "0123"


def sent(folder, files, token=TOKEN, banner=b"Welcome!\n", links=()):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    hello = json.dumps({"token": token, "now_ns": 10**18}).encode()
    path = folder / "000000"
    path.write_bytes(banner + everywhere.MARK + hello + b"\n" + packed.getvalue())
    return Answer(path, path.stat().st_size, started_ns=10**18, first_ns=10**18 + 10**8)


def document(**values):
    return json.dumps({"jobs": [{"ranks": [0, 1], "world_size": "4", "rendezvous": "a:1"}], **values}).encode()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path


def test_a_node_that_answers_well(place):
    answer = sent(place / "in", {"node.json": document(), "bundle/stacks/rank_0.txt": b"Thread\n"})
    node = everywhere._taken_in("me@node1", answer, TOKEN)
    assert (node.name, node.state, node.ranks, node.world) == ("node1", "here", [0, 1], 4)
    assert node.clock == (-0.05, 0.05)
    everywhere._place(node, place / "out")
    assert (place / "out/nodes/node1/stacks/rank_0.txt").read_bytes() == b"Thread\n"


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "bundle/../../escaped"])
def test_names_that_lead_outside(place, name):
    answer = sent(place / "in", {"node.json": document(), name: b"x"}, links=[("bundle/passwd", "/etc/passwd")])
    node = everywhere._taken_in("node1", answer, TOKEN)
    assert any("outside" in note for note in node.notes)
    assert any("link" in note for note in node.notes)
    assert not list(place.rglob("escaped"))
    assert not list(place.rglob("passwd"))


def test_somebody_else_answers(place):
    node = everywhere._taken_in("node1", sent(place / "in", {}, token="other"), TOKEN)
    assert node.state == "failed"
    assert not node.bundles


def test_a_node_is_called_as_it_calls_itself_unless_another_is():
    nodes = [Node("10.0.0.1", "here", own="gpu1"), Node("10.0.0.2", "here", own="same"),
             Node("10.0.0.3", "here", own="same"), Node("d", "here", own="10.0.0.1")]  # fmt: skip
    everywhere._settle_names(nodes)
    assert [node.name for node in nodes] == ["gpu1", "10.0.0.2", "10.0.0.3", "10.0.0.1"]
    assert everywhere.folder_name("../../etc") == "_.._etc"


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{", b'{"jobs": 7}', b'{"jobs": [7, {"ranks": "x", "world_size": {}}], "hidden": -1}',
     b'{"jobs": [{"ranks": [-1, 1e99, true, 99999999999], "world_size": "99999999999999999999"}]}'],
)  # fmt: skip
def test_documents_that_say_nonsense(place, data):
    node = everywhere._taken_in("node1", sent(place / "in", {"node.json": data}), TOKEN)
    assert node.state in ("here", "no job")
    assert [rank for rank in node.ranks if rank > 1] == []


def test_an_archive_that_was_cut_off(place):
    answer = sent(place / "in", {"node.json": document(), "bundle/a": b"a" * 100, "bundle/b": bytes(range(256)) * 400})
    answer.path.write_bytes(answer.path.read_bytes()[:-40])
    node = everywhere._taken_in("node1", answer, TOKEN)
    assert node.state == "here"
    assert node.notes


def rows(*keys):
    return [{"ranks": [n], "world_size": "2", "rendezvous": key, "command": "train.py"} for n, key in enumerate(keys)]


def test_several_jobs_are_told_apart():
    nodes = [Node("n1", "here", jobs=rows("a:1")), Node("n2", "here", jobs=rows("b:1"))]
    with pytest.raises(UsageError, match="2 jobs") as caught:
        everywhere._one_job(nodes)
    assert "--job b:1" in str(caught.value.hint)
    everywhere._one_job([Node("n1", "here", jobs=rows("a:1")), Node("n2", "here", jobs=rows("a:1"))])


def test_a_silent_node_means_something_only_where_its_ranks_are_missing(tmp_path):
    here, gone, other = Node("n1", "here", ranks=[0, 1], world=4), Node("n2", "unreachable"), Node("n3", "unreachable")
    entry = everywhere._entry(gone, Gathered(tmp_path, [here, gone]))
    assert (entry.state, entry.ranks) == ("silent", [2, 3])
    # Two ranks are missing and two nodes are silent: nobody knows which of them had the ranks.
    assert everywhere._entry(gone, Gathered(tmp_path, [here, gone, other])).state == "unreachable"
    all_here = Node("n1", "here", ranks=[0, 1, 2, 3], world=4)
    assert everywhere._entry(gone, Gathered(tmp_path, [all_here, gone])).state == "unreachable"


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", "-l@node", "$(id)", "a;b", "a b", "node[1-x]"])
def test_a_host_name_never_becomes_an_option_or_shell(host, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["collect", f"--hosts={host}", "--out", str(tmp_path / "out")]) == 2
    assert "host" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
