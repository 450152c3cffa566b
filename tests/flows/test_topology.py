"""Topology and fabric: which way traffic takes, and from a rank to its cable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.preflight import trees
from whichrank.cli.before import _topology
from whichrank.evidence.probes import Place, discover
from whichrank.evidence.topology.nccl_dumps import read_topology
from whichrank.fleet.engines import Engine
from whichrank.flows.preflight import topology
from whichrank.flows.preflight.memory_budget import Job, budget, parameters
from whichrank.model.errors import UnreadableError

SAMPLES = Path(__file__).parents[1] / "samples/fabric"
MATRIX = """\
\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\tSYS\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tPIX\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
SYSTEM = """<system version="1">
 <cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400">
   <pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" sm="90" rank="0" gdr="1">{links}</gpu></pci>
   <pci busid="0000:03:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0" gdr="{gdr}"/></nic></pci></pci></cpu>
 <cpu numaid="1"><pci busid="0000:81:00.0" class="0x060400"><pci busid="0000:82:00.0" class="0x060400">
   <pci busid="0000:83:00.0" class="0x030200"><gpu dev="1" sm="90" rank="1" gdr="1">{links}</gpu></pci></pci>
   <pci busid="0000:90:00.0" class="0x020700"><nic><net name="mlx5_1" dev="1" gdr="1"/></nic></pci></pci></cpu>
</system>"""


@pytest.mark.parametrize("tool", ["ibnetdiscover", "iblinkinfo"])
def test_every_cable_once(tool):
    found = topology.read([SAMPLES / f"{tool}.txt"])
    assert len(found.cables) == 12
    ends = {frozenset({str(c.a), str(c.b)}) for c in found.cables}
    assert frozenset({"node03 mlx5_1 port 1", "leaf02 port 3"}) in ends
    assert frozenset({"leaf01 port 10", "spine01 port 2"}) in ends


@pytest.mark.parametrize("tool", ["ibnetdiscover", "iblinkinfo"])
def test_a_stall_names_its_cable(tmp_path, tool):
    (tmp_path / "topo.txt").write_text(MATRIX)
    found = topology.read([tmp_path / "topo.txt", SAMPLES / f"{tool}.txt"])
    places = topology.places(found, ["node01", "node02", "node03", "node04"], 2)
    assert places[5].words() == "rank 5 → node03 → GPU 1 → mlx5_1 (PIX) → leaf02 port 3"
    assert {(p.rank, str(p.cable.b)) for p in places} == {
        (2 * host + rail, f"leaf0{rail + 1} port {host + 1}") for host in range(4) for rail in range(2)
    }


# The shapes of ibnetdiscover.c and iblinkinfo.c: a cut discovery, front-panel numbers, -p, --line, a narrow cable.
CUT = """\
switchguid=0xfc6a1c0300ab1200(fc6a1c0300ab1200)
Switch\t65 "S-fc6a1c0300ab1200"\t\t# "MF0;leaf01:MQM9790/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-e8ebd3030012a4b0"[1](e8ebd3030012a4b0) \t\t# "node01 mlx5_0" lid 11 4xNDR
[2]\t"H-e8ebd3030012a4c0"[1](e8ebd3030012a4c0) \t\t# "node02 mlx5_0" lid 12 4xNDR
[3]\t"H-e8ebd3030012b4c0"[1](e8ebd3030012b4c0) \t\t# "node02 mlx5_1" lid 14 2xNDR
"""
FRONT = """\
CA: node01 mlx5_0:
      0xe8ebd3030012a4b0     11    1[  ] ==( 4X      106.25 Gbps Active/  LinkUp)==>       1    1[ 1] "MF0;leaf01:MQM9790/U1" ( )
Switch: 0xfc6a1c0300ab1200 MF0;leaf01:MQM9790/U1:
           1    2[ 1] ==( 4X      106.25 Gbps Active/  LinkUp) (HOQ:18 VL_Stall:7)==>      12    1[  ] "node02 mlx5_0" ( )
           1    3[ 2] ==( 2X      106.25 Gbps Active/  LinkUp)==>      14    1[  ] "node02 mlx5_1" ( Could be 4X )
           1    4[ 2] ==(                Down/ Polling)==>             [  ] "" ( )
"""  # noqa: E501
LINES = """\
0xe8ebd3030012a4b0 "                 node01 mlx5_0"     11    1[  ] ==( 4X      106.25 Gbps Active/  LinkUp)==>  0xfc6a1c0300ab1200      1    1[ 1] "MF0;leaf01:MQM9790/U1" ( )
0xfc6a1c0300ab1200 "         MF0;leaf01:MQM9790/U1"      1    2[ 1] ==( 4X      106.25 Gbps Active/  LinkUp)==>  0xe8ebd3030012a4c0     12    1[  ] "node02 mlx5_0" ( )
0xfc6a1c0300ab1200 "         MF0;leaf01:MQM9790/U1"      1    3[ 2] ==( 2X      106.25 Gbps Active/  LinkUp)==>  0xe8ebd3030012b4c0     14    1[  ] "node02 mlx5_1" ( Could be 4X )
"""  # noqa: E501


@pytest.mark.parametrize("text", [CUT, FRONT, LINES], ids=["cut", "front-panel", "line"])
def test_other_ways_to_print_a_fabric(tmp_path, text):
    (tmp_path / "fabric.txt").write_text(text)
    (tmp_path / "topo.txt").write_text(MATRIX)
    found = topology.read([tmp_path / "fabric.txt", tmp_path / "topo.txt"])
    ways = [str(place.cable.b) if place.cable else None for place in topology.places(found, ["node01", "node02"], 2)]
    assert ways == ["leaf01 port 1", None, "leaf01 port 2", "leaf01 port 3"]
    (note,) = topology.cable_notes(found, ["node01", "node02"])
    assert "node02 mlx5_1 port 1" in note
    assert "leaf01 port 3" in note
    assert topology.cables_of(found, "node02") == [
        "node02 → mlx5_0 → leaf01 port 2", "node02 → mlx5_1 → leaf01 port 3",
    ]  # fmt: skip


def test_switches_that_nobody_named_are_told_apart(tmp_path):
    text = CUT.replace("MF0;leaf01:MQM9790/U1", "Quantum Mellanox Technologies")
    other = text.replace("fc6a1c0300ab1200", "fc6a1c0300ab1300").replace("a4b0", "c4b0").replace("node01", "node03")
    (tmp_path / "fabric.txt").write_text(text + other)
    far = [str(c.b if c.a.node.startswith("node01") else c.a) for c in topology.read([tmp_path / "fabric.txt"]).cables
           if "node01 mlx5_0" in (c.a.node, c.b.node)]  # fmt: skip
    assert far == ["Quantum Mellanox Technologies (fc6a1c0300ab1200) port 1"]


def test_a_file_that_is_no_topology_is_told(whichrank, tmp_path):
    (tmp_path / "topo.txt").write_text(MATRIX)
    (tmp_path / "notes.txt").write_text("remember the milk\n")
    done = whichrank("preflight", "--map", tmp_path / "topo.txt", "--map", tmp_path / "notes.txt")
    assert done.returncode == 0
    assert "notes.txt was not read" in done.stdout


def test_notes_and_drawing_stay_short(tmp_path):
    """Eight GPUs without NVLink: one note for all pairs; with NVLink no table of 64 equal cells."""
    names = [f"GPU{n}" for n in range(8)]
    for link in ("SYS", "NV18"):
        rows = ["\t".join([a, *(" X " if a == b else link for b in names), "SYS", "0-7", "0"]) for a in names]
        (tmp_path / "topo.txt").write_text("\t".join(["", *names, "mlx5_0", "CPU Affinity", "NUMA Affinity"]) + "\n"
                                           + "\n".join(rows) + "\n")  # fmt: skip
        (host,) = topology.read([tmp_path / "topo.txt"]).hosts
        assert len(topology.notes(host)) == (2 if link == "SYS" else 1)
        assert topology.drawing(host)[-1].startswith("Every GPU reaches every other over")
        assert max(map(len, topology.drawing(host))) < 80


def test_the_map_from_the_command_line(whichrank, tmp_path):
    (tmp_path / "topo.txt").write_text(MATRIX)
    done = whichrank(
        "preflight", "--map", tmp_path / "topo.txt", "--map", SAMPLES / "ibnetdiscover.txt", "--hosts", "node[01-04]",
        "--nproc-per-node", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "rank 7 → node04 → GPU 1 → mlx5_1 (PIX) → leaf02 port 4" in done.stdout


def test_the_cable_of_the_rank_that_a_verdict_blames(whichrank, tmp_path):
    (tmp_path / "topo.txt").write_text(MATRIX)
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"verdict": {"culprits": {"ranks": [5]}}}))
    words = ("preflight", "--map", tmp_path / "topo.txt", "--map", SAMPLES / "iblinkinfo.txt", "--hosts", "node[01-04]",
             "--nproc-per-node", 2, "--verdict", verdict)  # fmt: skip
    done = whichrank(*words)
    assert [line for line in done.stdout.splitlines() if line.startswith("rank ")] == [
        "rank 5 → node03 → GPU 1 → mlx5_1 (PIX) → leaf02 port 3"
    ]
    verdict.write_text("[]")
    done = whichrank(*words)
    assert (done.returncode, "holds no verdict" in done.stderr) == (2, True)


def test_a_verdict_says_itself_where_its_ranks_ran(whichrank, tmp_path):
    """Ranks that no list of hosts explains: the verdict knows their hosts and GPUs; links name their adapters."""
    (tmp_path / "topo.txt").write_text(MATRIX)
    at = {0: "node04", 1: "node02", 2: "node04", 3: "node02"}
    rows = [{"rank": rank, "host": host, "gpu": 0} for rank, host in at.items()]
    ends = {"a": {"host": "node01", "device": "mlx5_1"}, "b": {"host": "node03", "device": ""}}
    culprits = {"ranks": [2], "hosts": ["node03"], "links": [ends]}
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"verdict": {"culprits": culprits}, "ranks": rows}))
    maps = ("--map", SAMPLES / "ibnetdiscover.txt", "--verdict", verdict)
    told = whichrank("preflight", "--map", tmp_path / "topo.txt", *maps).stdout
    assert "The verdict blames rank 2 and node03." in told
    assert "rank 2 → node04 → GPU 1 → mlx5_1 (PIX) → leaf02 port 4" in told
    assert "node01 → mlx5_1 → leaf02 port 1" in told
    assert "node03 → mlx5_0 → leaf01 port 3" in told
    told = whichrank("preflight", *maps).stdout
    assert "node04 → mlx5_1 → leaf02 port 4" in told, "both cables of its host, where the adapter is not known"


def test_a_dump_of_nccl():
    found = topology.read([SAMPLES / "nccl_topo_h200.xml", SAMPLES / "nccl_graph_h200.xml"])
    assert found.hosts[0].paths == {(0, "eth0"): "PHB"}
    assert [g.pattern for g in found.graphs] == ["ring", "tree"]
    assert "no GPUDirect RDMA by default" in topology.notes(found.hosts[0])[0]


def test_paths_by_the_tree():
    host = read_topology(SYSTEM.format(links="", gdr="1"), "x")
    assert host.paths == {(0, "mlx5_0"): "PIX", (0, "mlx5_1"): "SYS", (1, "mlx5_0"): "SYS", (1, "mlx5_1"): "PXB"}
    assert host.between == {(0, 1): "SYS"}
    assert any("go through host memory" in note for note in topology.notes(host))
    linked = read_topology(
        SYSTEM.format(links='<nvlink target="ffff:ff:ff" count="18" tclass="0x068000"/>', gdr="0"), "x"
    )
    assert linked.between == {(0, 1): "NVL"}
    assert [n for n in topology.notes(linked) if "nvidia_peermem" in n]


@pytest.mark.parametrize("text", ["", "<system", "<!DOCTYPE x [<!ENTITY a 'b'>]><system/>", "nothing"])
def test_what_is_no_topology(tmp_path, text):
    (tmp_path / "x").write_text(text)
    with pytest.raises(UnreadableError):
        topology.read([tmp_path / "x"])


def parts(**job):
    return {part.what: part.octets for part in budget(Job(**job))}


def test_the_budget_follows_the_settings():
    usual = parts(world_size=8, ranks_per_host=8)["NCCL buffers inside the host"]
    fewer = parts(world_size=8, ranks_per_host=8, settings={"NCCL_MAX_NCHANNELS": "8"})["NCCL buffers inside the host"]
    assert fewer * 3 == usual
    large = parts(world_size=8, ranks_per_host=8, settings={"NCCL_BUFFSIZE": str(16 << 20)})
    assert large["NCCL buffers inside the host"] > 1.5 * usual
    assert "NCCL buffers inside the host" not in parts(world_size=1)


# Bytes per rank that NCCL 2.28.9 took on an H200 (driver 580, torch 2.11), ranks with a host id each over sockets.
@pytest.mark.parametrize(
    ("settings", "taken"),
    [({}, 411_041_792), ({"NCCL_MIN_NCHANNELS": "8"}, 448_790_528), ({"NCCL_BUFFSIZE": "16777216"}, 411_041_792)],
)
def test_the_budget_is_near_what_was_taken(settings, taken):
    told = parts(world_size=2, ranks_per_host=1, gpudirect=False, settings=settings)
    assert told["NCCL kernels"] + told["NCCL connections between hosts"] == pytest.approx(taken, rel=0.1)


# Peak above the sharded state in the backward pass of eight layers of 25 M parameters in float32, same machine.
@pytest.mark.parametrize(("world", "taken"), [(2, 302_471_680), (4, 353_000_000)])
def test_the_budget_of_fsdp_is_near_what_was_taken(world, taken):
    told = parts(world_size=world, parameters=200_000_000, parameter_bytes=4, strategy="fsdp", units=8)
    assert sum(octets for what, octets in told.items() if what.startswith("FSDP")) == pytest.approx(taken, rel=0.05)


def test_the_budget_of_ddp_and_fsdp():
    assert parts(world_size=8, ranks_per_host=8, parameters=10**9, strategy="ddp")["DDP buckets"] == 2 * 10**9
    assert parts(world_size=8, ranks_per_host=8, parameters=10**9, strategy="ddp", bucket_view=True)["DDP buckets"] == 0
    fsdp = parts(world_size=8, ranks_per_host=8, parameters=32 * 10**8, strategy="fsdp", units=32)
    assert fsdp["FSDP gathered parameters"] == 4 * 10**8
    assert (parameters("7B"), parameters("350M"), parameters("12")) == (7 * 10**9, 350 * 10**6, 12)


# In the form of drivers before R470: adapters by name, no legend.
NAMED = """\
\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity
GPU0\t X \tNV6\tPIX\tPXB\t0-23,48-71
GPU1\tNV6\t X \tPXB\tPIX\t0-23,48-71
mlx5_0\tPIX\tPXB\t X \tPXB\t
mlx5_1\tPXB\tPIX\tPXB\t X \t
"""


def test_adapters_that_are_columns_by_name():
    host = topology.of_matrix(NAMED.encode(), "x")
    assert host.nics == ("mlx5_0", "mlx5_1")
    assert [topology.adapter_of(host, gpu) for gpu in host.gpus] == [("mlx5_0", "PIX"), ("mlx5_1", "PIX")]


def test_hosts_whose_adapters_are_called_hca(tmp_path):
    """Node descriptions of older set-ups: `node03 HCA-2` is mlx5_1."""
    (tmp_path / "topo.txt").write_text(MATRIX)
    text = (SAMPLES / "ibnetdiscover.txt").read_text().replace(" mlx5_0", " HCA-1").replace(" mlx5_1", " HCA-2")
    (tmp_path / "fabric.txt").write_text("".join(f"   {line}\n" for line in text.splitlines()))
    found = topology.read([tmp_path / "topo.txt", tmp_path / "fabric.txt"])
    place = topology.places(found, ["node01", "node02", "node03", "node04"], 2)[5]
    assert str(place.cable.b) == "leaf02 port 3"


def test_the_tree_of_pci_devices(tmp_path):
    """GPU n and adapter n below one switch, four of each on a socket."""
    probes = discover()
    place = Place(trees.machine(tmp_path))
    host = topology.of_probes("node1", {"pci": probes["pci"].measure(place)})
    assert host.host == "node1"
    assert [topology.adapter_of(host, gpu) for gpu in host.gpus] == [(f"mlx5_{n}", "PIX") for n in range(8)]
    assert host.paths[0, "mlx5_1"] == "NODE"
    assert host.paths[0, "mlx5_7"] == "SYS"


def test_a_map_of_the_host_itself(whichrank, tmp_path):
    done = whichrank(
        "preflight", "--map", "here", "--map", SAMPLES / "ibnetdiscover.txt", "--root", trees.machine(tmp_path / "tree")
    )
    assert done.returncode == 0, done.stderr
    assert "mlx5_7 (PIX)" in done.stdout
    assert "rank 7 " in done.stdout


def test_the_budget_beside_what_is_free(whichrank, tmp_path):
    root = trees.machine(tmp_path / "tree", changes={3: [(r"(?s)(<fb_memory_usage>.*?<free>)\d+", r"\g<1>700")]})
    words = ("preflight", "--model-params", "1B", "--nproc-per-node", 8, "--root", root)
    done = whichrank(*words, "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 1, "it does not fit"
    assert (document["free_bytes"], document["free_on"].partition(" of ")[0]) == (700 << 20, "GPU 3")
    assert "are free now on GPU 3" in whichrank(*words).stdout


def test_the_budget_knows_the_gpus_of_the_host(whichrank, tmp_path):
    """Eight GPUs on switches that reduce take buffers for NVLS; float32 takes twice what bfloat16 does."""

    def told(root, *words, **env):
        words = ("preflight", "--model-params", "1B", "--root", root, "--format", "json", *words)
        return {part["what"]: part["octets"] for part in json.loads(whichrank(*words, **env).stdout)["parts"]}

    usual = told(trees.machine(tmp_path / "usual"), "--param-bytes", 4)
    assert usual["DDP buckets"] == 4 * 10**9
    assert "NCCL buffers inside the host" in usual
    assert "NVLS buffers" not in usual
    fabric = {n: [(r"(<fabric>\s*<state>)N/A", r"\g<1>Completed")] for n in range(8)}
    switched = trees.machine(tmp_path / "switched", changes=fabric)
    assert told(switched)["NVLS buffers"] == 256 << 20
    assert "NVLS buffers" not in told(switched, "--nproc-per-node", 2)
    assert "NVLS buffers" not in told(switched, NCCL_NVLS_ENABLE="0")


def test_without_rdma_nothing_lies_on_the_gpu(monkeypatch, capsys):
    gpus = {"gpus": [{"index": 0, "values": {"memory_free": "9000 MiB"}}]}
    for ports, what in (([{"state": "ACTIVE"}], "NCCL buffers between hosts"),
                        ([{"state": "DOWN"}], "NCCL connections between hosts")):  # fmt: skip
        answers = {host: {"gpus": gpus, "rdma": {"ports": ports}} for host in ("a", "b")}
        monkeypatch.setattr(_topology, "_asked", lambda *_, answers=answers: answers)
        engine = Engine("test", ("a", "b"), lambda _host, command: list(command))
        assert _topology.tell_budget("1B", "ddp", 1, 2, engine, [], None, False, "json", None) == 0
        assert what in [part["what"] for part in json.loads(capsys.readouterr().out)["parts"]]
