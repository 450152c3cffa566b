"""collect and stacks over ssh: real sshd in network namespaces, a real job that hangs, nodes that are broken."""

from __future__ import annotations

import json
import sys
import time

import jsonschema
import pytest

from tests.preflight.cluster import READY, Cluster
from tests.run.first_response.nodes import NO_PYTHON, drop_packets, full_disk, start_job, whichrank
from whichrank.cli.tools.schema import schemas

pytestmark = [
    pytest.mark.job,
    pytest.mark.slow,
    pytest.mark.skipif(not READY, reason="needs root, ip, nft, tc and sshd"),
]


@pytest.fixture(scope="module")
def cluster():
    """node2's rank is stuck, node3's disk is full, node4 has no Python, node5 gets no packets."""
    with Cluster(5) as made:
        made.extra = {"node3": full_disk(made), "node4": NO_PYTHON}
        made.start()
        (made.folder / "logs").mkdir()
        start_job(made, made.names[:3], 1, made.folder / "logs")
        drop_packets(made, "node5")
        yield made


def test_one_command_takes_all_nodes_and_names_the_rank(cluster):
    out = cluster.folder / "bundle"
    done = whichrank(cluster, "collect", "--hosts", "node[1-5]", "--out", str(out), "--format", "json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schemas()["diagnose"].read_text()))
    assert document["verdict"]["culprits"]["ranks"] == [1]
    assert document["verdict"]["cause"] == "rank-stuck-in-data-loading"
    assert document["verdict"]["culprits"]["code"][0]["function"] == "fetch_shard"
    # Nobody else is accused: the nodes that did not answer carry no rank.
    assert {finding["cause"] for finding in document["findings"]} == {"rank-stuck-in-data-loading"}
    assert "3 of 3 ranks on 3 of 5 nodes" in done.stderr
    assert "node4 failed: there is no Python 3.8 or newer" in done.stderr
    assert "node5 unreachable" in done.stderr
    assert out.stat().st_mode & 0o777 == 0o700
    manifest = json.loads((out / "manifest.json").read_text())
    assert {gap["host"] for gap in manifest["missing"] if gap["what"] == "evidence of the node"} == {"node4", "node5"}
    assert not (out / "nodes/node4").exists()
    # The node with the full disk gives all it has, and its settings are shown without secrets.
    assert (out / "nodes/node3/stacks/rank_2.txt").stat().st_size > 100
    assert "RANK=2" in (out / "nodes/node3/environment/rank_2.env").read_text()
    assert not any(b"hunter2" in path.read_bytes() for path in out.rglob("*") if path.is_file())


def test_nodes_reduce_their_evidence_and_capture_packets(cluster):
    out = cluster.folder / "reduced"
    asked = (
        "--hosts",
        "node[1-3]",
        "--reduce",
        "--packets",
        "2",
        "--timeout",
        "120",
        "--out",
        str(out),
        "--format",
        "json",
    )
    done = whichrank(cluster, "collect", *asked)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"]["culprits"]["ranks"] == [1]
    assert document["verdict"]["cause"] == "rank-stuck-in-data-loading"
    summaries = sorted(path.parent.name for path in out.rglob("summary.whichrank"))
    assert summaries == ["node1", "node2", "node3"], done.stderr
    assert sorted(path.name for path in (out / "nodes/node1").iterdir()) == ["manifest.json", "summary.whichrank"]
    readers = {source["reader"] for source in document["coverage"]["sources"]}
    assert {"pcap", "stacks"} <= readers
    assert not any(b"hunter2" in path.read_bytes() for path in out.rglob("*") if path.is_file())


FETCHES = """
import json, sys
from pathlib import Path
from whichrank.fleet.engines import ssh
from whichrank.run.first_response.everywhere import Wishes, fetch_whole, gather
wishes = Wishes(reduce=True, limit_s=120.0)
engines = [ssh.engine(["node1", "node2"], {}, sys.argv[1], 5)]
gathered = gather(engines, Path(sys.argv[2]), wishes)
reduced = [node.reduced for node in gathered.nodes]
print(json.dumps([reduced, [node.name for node in fetch_whole(engines, gathered, [1], wishes, None)]]))
"""


def test_whole_evidence_is_fetched_where_a_summary_leaves_a_doubt(cluster):
    out = cluster.folder / "doubt"
    way = f"ssh -F {cluster.folder / 'ssh_config'}"
    done = cluster.inside("login", sys.executable, "-c", FETCHES, way, str(out), check=False)
    assert json.loads(done.stdout) == [[True, True], ["node2"]], done.stderr
    assert (out / "nodes/node2/stacks/rank_1.txt").exists()
    assert not (out / "nodes/node2/summary.whichrank").exists()
    assert (out / "nodes/node1/summary.whichrank").exists()


def leaves(tree):
    for node in tree:
        yield from leaves(node["children"]) if node["children"] else [(node["frame"]["function"], node["ranks"])]


def test_the_stacks_of_all_nodes_as_one_tree(cluster):
    done = whichrank(cluster, "stacks", "--hosts", "node[1-4]", "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schemas()["stacks"].read_text()))
    assert document["ranks"] == [0, 1, 2]
    innermost = dict(leaves(document["tree"]))
    assert innermost["fetch_shard"] == [1]
    assert innermost["all_reduce"] == [0, 2]
    assert "node4 failed" in done.stderr


def test_a_job_that_nobody_has(cluster):
    out = cluster.folder / "nothing"
    done = whichrank(cluster, "collect", "--hosts", "node1", "--job", "elsewhere:1", "--out", str(out))
    assert done.returncode == 2
    assert "no rank was found" in done.stderr


@pytest.mark.bars
def test_32_nodes_within_20_seconds(tmp_path):
    with Cluster(32) as made:
        made.extra = {"node3": full_disk(made), "node20": NO_PYTHON}
        made.start()
        (made.folder / "logs").mkdir()
        start_job(made, made.names[:8], 5, made.folder / "logs")
        drop_packets(made, "node30")
        began = time.monotonic()
        out = str(made.folder / "bundle")
        done = whichrank(made, "collect", "--hosts", "node[1-32]", "--out", out, "--format", "json")
        took = time.monotonic() - began
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict["cause"], verdict["culprits"]["ranks"]) == ("rank-stuck-in-data-loading", [5])
    assert "8 of 8 ranks on 8 of 32 nodes" in done.stderr
    assert took < 20, f"{took:.1f} s"
