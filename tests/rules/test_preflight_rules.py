"""Rules of preflight and bench: their contract, what must fire on trees of machines, and what, near to it, must not."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.preflight import trees
from whichrank.evidence.probes import Absent, Missing, Place, discover
from whichrank.facts.taxonomy import causes
from whichrank.flows.discovery import rules_below
from whichrank.flows.preflight import check as flow
from whichrank.model.preflight import Blame, Launch
from whichrank.records.inspection import (
    Attempt,
    Clock,
    HostProbes,
    Inspection,
    Pace,
    ProbeResult,
    Rate,
    Volley,
    usual_gbits,
)
from whichrank.rules.preflight_fleet import (
    blocked_ports,
    clock_difference,
    duplicate_address,
    host_names,
    hosts_differ,
    long_round_trip,
    lossy_path,
    one_way_path,
    slow_host,
)

HOST_RULES = {rule.CHECK: rule for rule in rules_below("preflight_host")}
FLEET_RULES = rules_below("preflight_fleet")
PROBES = discover()
each = pytest.mark.parametrize("rule", HOST_RULES.values(), ids=lambda rule: rule.CODE)


def measured(name, place):
    """As a child of preflight would answer, without one."""
    try:
        return ProbeResult(name, json.loads(json.dumps(PROBES[name].measure(place))) or {})
    except Missing as error:
        return ProbeResult(name, {}, str(error), absent=isinstance(error, Absent))


def inspected(root, launch=None):
    """A recorded tree, probed and judged."""
    launch = launch or Launch(ranks_per_host=8)
    names = ("gpus", "pci", "rdma", "limits", "cpu", "memory", "kernel_log", "software", "fabric_manager")
    place = Place(root, launch, {})
    results = {name: measured(name, place) for name in names}
    told = flow.judge(Inspection([HostProbes("node1", results)], launch))
    return {check.check: check for check in told.hosts["node1"]}, told


@each
def test_a_rule_names_its_probe_cause_and_fix(rule):
    assert rule.PROBE in PROBES
    assert rule.CAUSE in causes()
    assert rule.FIX
    assert all(step.endswith((".", ")")) for step in rule.FIX)


def test_without_measurements_every_check_is_unknown_and_none_is_healthy():
    told = flow.judge(Inspection([HostProbes("node1", {"x": ProbeResult("x")})], Launch()))
    assert {check.state for check in told.hosts["node1"]} == {"unknown"}
    assert told.findings == []
    assert told.blind


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["gpus", "values", "links", "devices", "ports", "events", "folders", "kind", "state", "aer", "growth", "index"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


keys = st.sampled_from(
    [
        "gpus",
        "devices",
        "ports",
        "events",
        "folders",
        "memlock",
        "shm_size",
        "interfaces",
        "orphans",
        "versions",
        "nccl",
    ]
)


@given(st.dictionaries(keys, values, max_size=5))
def test_nonsense_from_another_host_breaks_nothing(said):
    results = {name: ProbeResult(name, said) for name in PROBES}
    told = flow.judge(Inspection([HostProbes("a", results), HostProbes("b", results)], Launch(hosts=2)))
    for checks in told.hosts.values():
        assert all(check.state in ("healthy", "unhealthy", "unknown") for check in checks)


def test_a_healthy_machine(tmp_path):
    checks, told = inspected(trees.machine(tmp_path))
    bad = {name: check.why for name, check in checks.items() if check.state == "unhealthy"}
    assert bad == {}
    assert told.findings == []
    for name in (
        "gpus",
        "gpu-memory",
        "gpu-recovery",
        "gpu-clocks",
        "kernel-log",
        "pcie",
        "numa",
        "memlock",
        "rdma-ports",
    ):
        assert checks[name].state == "healthy", (name, checks[name])
    assert checks["gpudirect"].value == "nvidia_peermem"


GPU_FAULTS = {
    "gpu-memory": [(r"(<remapped_row_pending>)No", r"\g<1>Yes")],
    "gpu-recovery": [(r"(<gpu_recovery_action>)None", r"\g<1>Reset")],
    "gpu-clocks": [(r"(<clocks_event_reason_hw_thermal_slowdown>)Not Active", r"\g<1>Active")],
    "mig": [(r"(<current_mig>)[^<]+", r"\g<1>Enabled")],
    "pcie": [(r"(<current_link_width>)16x", r"\g<1>8x")],
}


@pytest.mark.parametrize("name", GPU_FAULTS)
def test_one_gpu_of_eight_is_named(tmp_path, name):
    root = trees.machine(tmp_path, changes={5: GPU_FAULTS[name]})
    checks, told = inspected(root)
    assert checks[name].state == "unhealthy"
    (finding,) = told.findings
    assert [gpu.index for gpu in finding.subject.gpus] == [5]
    assert finding.subject.gpus[0].uuid.startswith("GPU-00000005")


def test_a_gpu_that_fell_off_the_bus(tmp_path):
    root = trees.machine(tmp_path)
    trees.write(root, "commands/nvidia-smi_-q_-x", trees.report(7))
    checks, _ = inspected(root)
    assert checks["gpus"].state == "unhealthy"
    assert "0000:17:00.0" in checks["gpus"].why


def test_a_pair_of_cards_without_nvsmi_is_not_called_broken(tmp_path):
    root = trees.machine(tmp_path)
    (root / "commands/nvidia-smi_-q_-x").unlink()
    checks, told = inspected(root)
    assert checks["gpus"].state == "unknown"
    assert told.findings == []


XIDS = {
    "NVRM: Xid (PCI:0000:15:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": "unhealthy",
    "NVRM: Xid (PCI:0000:15:00): 48, pid=12, name=python, DBE": "unhealthy",
    "NVRM: Xid (PCI:0000:15:00): 31, pid=812, name=python, MMU Fault": "healthy",
    "NVRM: Xid (PCI:0000:15:00): 43, pid=812, name=python, channel reset": "healthy",
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": "healthy",
    "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)": "healthy",
}


@pytest.mark.parametrize("line", XIDS)
def test_only_faults_of_the_hardware_count(tmp_path, line):
    root = trees.machine(tmp_path, gpus=1, nics=0)
    trees.write(
        root, "commands/dmesg", f"[    0.000000] Linux version 6.8.0\n[  100.000001] {line}\n[  200.000001] x\n"
    )
    checks, _ = inspected(root, Launch())
    assert checks["kernel-log"].state == XIDS[line]


def test_rdma_ports(tmp_path):
    root = trees.machine(tmp_path)
    trees.port(root, "mlx5_3", state="1: DOWN", phys_state="2: Polling")
    checks, _ = inspected(root)
    assert checks["rdma-ports"].state == "unhealthy"
    assert "mlx5_3/1: DOWN (Polling): cable or far end" in checks["rdma-ports"].why
    trees.port(root, "mlx5_3", rate="200 Gb/sec (2X NDR)")
    assert "200 Gb/sec" in inspected(root)[0]["rdma-ports"].why
    trees.port(root, "mlx5_3", rate="400 Gb/sec (4X NDR)")
    assert inspected(root)[0]["rdma-ports"].state == "healthy"
    assert inspected(root)[0]["rdma-counters"].state == "unknown"  # read once: no rate


def roce(root, name, **changes):
    trees.port(
        root, name, rate="200 Gb/sec (4X HDR)", link_layer="Ethernet",
        **{"gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0105", "gid_attrs/types/3": "RoCE v2",
           "gids/1": "fe80:0000:0000:0000:966d:aeff:feb9:9bf6", "gid_attrs/types/1": "RoCE v2", **changes},
    )  # fmt: skip
    (root / f"sys/class/infiniband/{name}/device/net/ens{name[-1]}").mkdir(parents=True, exist_ok=True)


def ecn(root, net, value):
    for side in ("roce_np", "roce_rp"):
        for priority in range(8):
            on = value if priority == 3 else "0"
            trees.write(root, f"sys/class/net/{net}/ecn/{side}/enable/{priority}", f"{on}\n")


def test_roce_without_flow_control(tmp_path):
    root = trees.machine(tmp_path, nics=2)
    pfc = '{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[false,false,false,%s,false,false,false,false]}'
    for name in ("mlx5_0", "mlx5_1"):
        roce(root, name)
    assert inspected(root)[0]["roce-flow-control"].state == "unknown"  # nobody tells
    for number in range(2):
        trees.write(root, f"commands/dcb_-j_pfc_show_dev_ens{number}", pfc % "true")
        ecn(root, f"ens{number}", "1")
    assert inspected(root)[0]["roce-flow-control"].value == "priority 3"
    trees.write(root, "commands/dcb_-j_pfc_show_dev_ens1", pfc % "false")
    assert inspected(root)[0]["roce-flow-control"].state == "healthy"  # ECN alone will do
    ecn(root, "ens1", "0")
    check = inspected(root)[0]["roce-flow-control"]
    assert (check.state, check.why) == ("unhealthy", "mlx5_1/1 (ens1): PFC and ECN are off at every priority")


def test_what_rdma_ports_are_set_to(tmp_path):
    root = trees.machine(tmp_path, nics=1)
    roce(root, "mlx5_0")
    trees.write(root, "commands/ibv_devinfo", "hca_id:\tmlx5_0\n\tport:\t1\n\t\tactive_mtu:\t\t1024 (3)\n")
    (port,) = PROBES["rdma"].measure(Place(root))["ports"]
    assert (port["mtu"], port["roce_gid"]) == (1024, 3), "the GID with the IPv4 address"


def test_nvlink_errors_that_grow(tmp_path):
    root = trees.machine(tmp_path)
    gpus = PROBES["gpus"].measure(Place(root))
    rule = HOST_RULES["nvlink"]
    for gpu in gpus["gpus"]:
        gpu["links"] = [{"link": n, "active": True, "replay_errors": 3, "growth": {}} for n in range(18)]
    assert rule.judge(gpus, HostProbes("node1"), Launch()).state == "healthy"
    gpus["gpus"][2]["links"][7]["growth"] = {"replay_errors": 40}
    check = rule.judge(gpus, HostProbes("node1"), Launch())
    assert (check.severity, check.gpus, check.why) == (
        "warning", (2,), "GPU 2: link 7: replay errors +40 while looking",
    )  # fmt: skip
    gpus["gpus"][2]["links"][7]["growth"] = {"recovery_errors": 1}
    assert rule.judge(gpus, HostProbes("node1"), Launch()).severity == "error"


def test_the_nccl_that_is_loaded_counts():
    rule = HOST_RULES["nccl-library"]
    ours = {"path": "/venv/nccl/libnccl.so.2", "origin": "torch", "version": "2.28.9"}
    other = {"path": "/opt/nccl/libnccl.so.2", "origin": "LD_LIBRARY_PATH", "version": "2.18.5"}
    judge = partial(rule.judge, host=HostProbes("node1"), launch=Launch())
    assert judge({"nccl": [{**ours, "loaded": True}, other]}).state == "healthy", "the other one is not loaded"
    check = judge({"nccl": [{**other, "loaded": True}, ours]})
    assert "/opt/nccl/libnccl.so.2" in check.why
    assert "torch brings 2.28.9" in check.why
    assert judge({"nccl": [ours, other]}).state == "unhealthy", "nobody can tell which"


def test_acs_that_redirects_between_a_gpu_and_its_adapter(tmp_path):
    root = trees.machine(tmp_path)
    (root / "sys/devices/pci0000:02/0000:42:00.0/config").write_bytes(trees.config(0x1D))
    checks, _ = inspected(root)
    assert checks["acs-iommu"].state == "unhealthy"
    assert "0000:42:00.0" in checks["acs-iommu"].why
    trees.write(root, "proc/cpuinfo", "flags : fpu hypervisor\n")
    assert inspected(root)[0]["acs-iommu"].state == "healthy"


def test_memlock_matters_with_rdma_only(tmp_path):
    low = trees.LIMITS.replace(
        "Max locked memory         unlimited            unlimited",
        "Max locked memory         65536                65536",
    )
    root = trees.machine(tmp_path / "with")
    trees.write(root, "proc/self/limits", low)
    assert inspected(root)[0]["memlock"].state == "unhealthy"
    root = trees.machine(tmp_path / "without", nics=0)
    trees.write(root, "proc/self/limits", low)
    assert inspected(root)[0]["memlock"].state == "healthy"


@pytest.mark.parametrize(
    ("quota", "cpu", "memory"),
    [("40000 100000", "unhealthy", "healthy"), ("max 100000", "healthy", "healthy"), (None, "unknown", "unknown")],
)
def test_a_cpu_quota_and_one_that_can_not_be_seen(tmp_path, quota, cpu, memory):
    root = trees.machine(tmp_path)
    trees.write(root, "proc/self/cgroup", "0::/kubepods/pod1\n")
    if quota:
        trees.write(root, "sys/fs/cgroup/kubepods/pod1/cpu.max", quota)
        trees.write(root, "sys/fs/cgroup/kubepods/pod1/memory.max", "max")
    checks = inspected(root)[0]
    assert (checks["cpu"].state, checks["memory"].state) == (cpu, memory)


def test_cpus_of_the_other_socket(tmp_path):
    root = trees.machine(tmp_path)
    trees.write(root, "proc/self/status", "Cpus_allowed_list:\t0-31\n")
    assert "is on node 1" in inspected(root)[0]["numa"].why


def test_too_few_visible_gpus(tmp_path):
    checks, _ = inspected(trees.machine(tmp_path, gpus=4, nics=0), Launch(ranks_per_host=8))
    assert "8 ranks will start here, 4 GPUs are visible" in checks["gpus"].why


def nccl(environ, names, hosts=2):
    rule = HOST_RULES["interface"]
    shown = [{"name": n, "flags": 1, "addresses": [a]} for n, a in names.items()]
    resolved = ProbeResult("names", {"addresses": ["10.0.0.1"]})
    return rule.judge(
        {"interfaces": shown, "chosen_by_user": environ}, HostProbes("a", {"names": resolved}), Launch(hosts)
    )


def test_the_interface_that_nccl_takes():
    two = {"lo": "127.0.0.1/8", "docker0": "172.17.0.1/16", "eth0": "10.0.0.1/24"}
    assert nccl({}, two).value == "NCCL eth0, Gloo eth0"
    assert nccl({}, {"lo": "127.0.0.1/8", "docker0": "172.17.0.1/16"}).state == "unhealthy"
    assert nccl({}, {"lo": "127.0.0.1/8"}, hosts=1).state == "healthy"
    assert nccl({"NCCL_SOCKET_IFNAME": "^docker,lo"}, two).value.startswith("NCCL eth0")
    assert nccl({"NCCL_SOCKET_IFNAME": "=eth"}, two).state == "unhealthy"
    assert nccl({}, {"eth0": "10.0.0.1/24", "ib0": "10.1.0.1/24"}).value.startswith("NCCL ib0")


# -- between hosts


@pytest.mark.parametrize("rule", FLEET_RULES, ids=lambda rule: rule.CODE)
def test_of_nothing_nothing_is_said(rule):
    answer = rule.judge(Inspection())
    assert not isinstance(answer, list)
    assert answer.missing


def attempts(bad, hosts="abcd", kinds=("rendezvous", "high")):
    return [
        Attempt(a, b, 29500 if kind == "rendezvous" else 41000, kind, bad(a, b, kind) or "connected", "", f"10.0.0.{b}")
        for a in hosts for b in hosts if a != b for kind in kinds
    ]  # fmt: skip


def places(bad, hosts="abcdef"):
    told = blocked_ports.judge(Inspection(attempts=attempts(bad, hosts)))
    return [("".join(f.subject.hosts) or "-".join(e.host for x in f.subject.links for e in (x.a, x.b))) for f in told]


def test_a_reset_from_an_open_port_is_a_firewall():
    told = blocked_ports.judge(Inspection(attempts=attempts(lambda a, b, kind: "refused" if b == "c" else "")))
    assert [f.subject.hosts for f in told] == [("c",)]
    assert "reset although somebody listens" in told[0].message


@pytest.mark.parametrize("hosts", ["abc", "abcd", "abcdef"])
def test_a_port_that_is_closed_everywhere_is_told_once(hosts):
    assert places(lambda a, b, kind: "dropped" if kind == "rendezvous" else "", hosts) == [hosts]


def test_two_hosts_with_a_firewall():
    assert places(lambda a, b, kind: "dropped" if b in "bd" else "") == ["b", "d"]


def test_hosts_that_fall_into_groups():
    assert places(lambda a, b, kind: "dropped" if (a in "ab") != (b in "ab") else "") == ["ab"]
    assert places(lambda a, b, kind: "dropped" if (a in "abc") != (b in "abc") else "") == ["abcdef"]


def test_single_pairs():
    assert places(lambda a, b, kind: "dropped" if a + b in ("ab", "de") else "") == ["a-b", "d-e"]


def test_a_firewall_that_blocks_a_part_of_the_high_ports():
    def outcome(b, port):
        return "dropped" if b == "c" and 40000 <= port <= 50000 else "connected"

    tried = [
        Attempt(a, b, port, "high", outcome(b, port), "", f"10.0.0.{b}")
        for a in "abcd" for b in "abcd" if a != b for port in (33000, 41000, 45000, 58000)
    ]  # fmt: skip
    (told,) = blocked_ports.judge(Inspection(attempts=tried))
    assert told.subject.hosts == ("c",)
    assert "to c on some high ports (41000 to 45000, 2 of 4) are dropped" in told.message


def test_a_firewall_of_one_host():
    told = blocked_ports.judge(
        Inspection(attempts=attempts(lambda a, b, kind: "dropped" if b == "c" and kind == "high" else ""))
    )
    (finding,) = told
    assert finding.subject.hosts == ("c",)
    assert "to c on high ports are dropped" in finding.message
    assert "would start and then hang" in finding.message


def test_a_blocked_pair_is_a_link():
    told = blocked_ports.judge(
        Inspection(attempts=attempts(lambda a, b, kind: "dropped" if {a, b} == {"a", "d"} else ""))
    )
    (finding,) = told
    assert finding.subject.hosts == ()
    assert {finding.subject.links[0].a.host, finding.subject.links[0].b.host} == {"a", "d"}


def test_hosts_limit_how_many_rejections_they_send():
    tried = attempts(lambda a, b, kind: ("rejected" if kind == "rendezvous" else "dropped") if a + b == "ab" else "")
    (told,) = blocked_ports.judge(Inspection(attempts=tried))
    assert told.message == "Connections from a to b on every port tried are rejected."


@pytest.mark.parametrize(
    ("lost", "words"), [("to", "in what it receives"), ("from", "in what it sends"), ("both", "was tested with.")]
)
def test_the_direction_of_loss(lost, words):
    def volley(a, b):
        bad = (b == "c" and lost != "from") or (a == "c" and lost != "to")
        return Volley(a, b, {128: 300}, {128: 280 if bad else 300})

    volleys = [volley(a, b) for a in "abcd" for b in "abcd" if a != b]
    (told,) = lossy_path.judge(Inspection(volleys=volleys, loss=Blame(hosts=("c",))))
    assert told.subject.hosts == ("c",)
    assert words in told.message


def test_one_way():
    def volley(a, b):
        return Volley(a, b, {128: 100}, {} if a == "c" else {128: 100})

    volleys = [volley(a, b) for a in "abc" for b in "abc" if a != b]
    (finding,) = one_way_path.judge(Inspection(volleys=volleys))
    assert finding.subject.hosts == ("c",)
    assert "Nothing that c sends arrives" in finding.message
    assert (
        one_way_path.judge(Inspection(volleys=[Volley("a", "b", {128: 9}, {}), Volley("b", "a", {128: 9}, {})])) == []
    )


def test_names():
    own = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}
    good = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}
    assert host_names.judge(Inspection(names={"a": good, "b": good}, addresses=own)) == []
    wrong = {"a": ["10.0.0.1"], "b": ["10.0.0.9"]}
    (finding,) = host_names.judge(Inspection(names={"a": wrong, "b": good}, addresses=own))
    assert finding.subject.hosts == ("a",)
    loop = {"a": ["127.0.1.1"], "b": ["10.0.0.2"]}
    assert host_names.judge(Inspection(names={"a": loop, "b": good}, addresses=own)) == []


def test_clocks():
    clocks = [Clock(h, 0.1, 0.01) for h in "abc"]
    assert clock_difference.judge(Inspection(clocks=clocks)) == []
    (finding,) = clock_difference.judge(Inspection(clocks=[*clocks, Clock("d", -4.9, 0.01)]))
    assert finding.subject.hosts == ("d",)
    assert "behind" in finding.message
    assert clock_difference.judge(Inspection(clocks=[*clocks, Clock("d", -1.9, 3.0)])) == []  # the way took too long


@pytest.mark.parametrize(
    ("ahead", "blamed"),
    [
        ((0, 2), "ab"),
        ((0, 0.9), ""),
        ((0, 0, 2, 2), "abcd"),
        ((0, 0, 0, 2, 2), "de"),
        ((-1700, -1700, -1700), ""),
    ],
)
def test_clocks_without_a_majority(ahead, blamed):
    """Two hosts that are two seconds apart are each one second from the middle."""
    clocks = [Clock(host, float(seconds), 0.01) for host, seconds in zip("abcdefgh", ahead, strict=False)]
    told = clock_difference.judge(Inspection(clocks=clocks))
    assert "".join(host for finding in told for host in finding.subject.hosts) == blamed


def test_stragglers_need_to_be_slow_twice():
    together = [Pace(h, 1.0 if h != "d" else 4.0, 1.0) for h in "abcd"]
    confirmed = [*together, Pace("d", 4.0, 1.0, 30, alone=True), Pace("a", 1.0, 1.0, 0, alone=True)]
    (finding,) = slow_host.judge(Inspection(paces=confirmed))
    assert finding.subject.hosts == ("d",)
    assert "throttled 30 times" in finding.message
    passing = [*together, Pace("d", 1.1, 1.0, alone=True), Pace("a", 1.0, 1.0, alone=True)]
    assert slow_host.judge(Inspection(paces=passing)) == []


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ([1.9, 2.1, 2.0], [1.0, 1.1, 1.2], True),  # slower every time
        ([1.9, 2.1, 2.0], [1.0, 1.0, 1.8], False),  # another was as slow once: the machine is busy
        ([1.0, 2.1, 2.0], [1.0, 1.1, 1.2], False),  # it can be fast
        ([2.0], [1.0, 1.0, 1.0], False),  # one turn says little
        ([4.0], [1.0, 1.1, 1.2], True),  # unless it says much
    ],
)
def test_a_busy_moment_is_no_straggler(own, others, found):
    together = [Pace(h, 1.0 if h != "d" else 4.0, 1.0) for h in "abcd"]
    again = [Pace("d", s, 0.5, alone=True) for s in own] + [Pace("a", s, 0.5, alone=True) for s in others]
    assert bool(slow_host.judge(Inspection(paces=[*together, *again]))) == found


def test_a_slow_processor_is_told_by_its_own_clock():
    together = [Pace(h, 1.0 if h != "d" else 2.0, 1.0) for h in "abcd"]
    again = [Pace("d", 2.0, 1.9, alone=True), Pace("a", 1.5, 1.0, alone=True), Pace("a", 1.0, 1.0, alone=True)]
    (finding,) = slow_host.judge(Inspection(paces=[*together, *again]))
    assert finding.subject.hosts == ("d",)


def test_a_round_trip_is_long_beside_the_others():
    def inspection(trip):
        return Inspection(attempts=[replace(a, rtt_us=trip(a.a, a.b)) for a in attempts(lambda *_: "")])

    (finding,) = long_round_trip.judge(inspection(lambda a, b: 20_000 if "c" in (a, b) else 90))
    assert finding.subject.hosts == ("c",)
    assert "c: a round trip of 20.0 ms towards every other host; 0.1 ms is usual." in finding.message
    (finding,) = long_round_trip.judge(inspection(lambda a, b: 20_000 if {a, b} == {"a", "c"} else 90))
    assert [(x.a.host, x.b.host) for x in finding.subject.links] == [("a", "c")]
    assert long_round_trip.judge(inspection(lambda a, b: 20_000 if (a, b) == ("a", "c") else 90)) == [], "one way only"
    assert long_round_trip.judge(inspection(lambda a, b: 900 if "c" in (a, b) else 90)) == [], "not worth a word"
    assert long_round_trip.judge(inspection(lambda *_: 30_000)) == [], "all of them are far apart"
    (finding,) = long_round_trip.judge(inspection(lambda a, b: 9_000 if (a in "ab") != (b in "ab") else 90))
    assert "between 4 pairs of hosts" in finding.message, "two sites"


def software(driver="580", memory=2_000_000_000, **environment):
    return {
        "software": ProbeResult(
            "software", {"versions": {"driver": driver, "python": "3.11"}, "environment": environment}
        ),
        "memory": ProbeResult("memory", {"MemTotal": memory}),
    }


def test_the_odd_host_is_named():
    hosts = [HostProbes(h, software()) for h in "abc"]
    assert hosts_differ.judge(Inspection([*hosts, HostProbes("d", software(memory=1_900_000_000))])) == []
    (finding,) = hosts_differ.judge(Inspection([*hosts, HostProbes("d", software("535"))]))
    assert finding.subject.hosts == ("d",)
    assert finding.cause == "driver-mismatch"
    (finding,) = hosts_differ.judge(Inspection([*hosts, HostProbes("d", software(NCCL_ALGO="Ring"))]))
    assert "NCCL_ALGO" in finding.message


def test_a_driver_that_only_its_own_tools_tell():
    def host(name, driver):
        return HostProbes(name, {"gpus": ProbeResult("gpus", {"gpus": [{"index": 0, "driver": driver}]})})

    (finding,) = hosts_differ.judge(Inspection([*(host(name, "580.65.06") for name in "abc"), host("d", "570.86.15")]))
    assert (finding.subject.hosts, finding.cause) == (("d",), "driver-mismatch")


@pytest.mark.parametrize(("own", "found"), [(8, True), (94, False)])
def test_a_host_whose_processes_may_use_fewer_cpus(own, found):
    """What a system keeps for itself is no difference; half of the CPUs and less is."""
    hosts = [HostProbes(name, {"cpu": ProbeResult("cpu", {"allowed_count": count})})
             for name, count in zip("abcd", (96, 96, 96, own), strict=True)]  # fmt: skip
    told = [(f.subject.hosts, f.message) for f in hosts_differ.judge(Inspection(hosts))]
    assert told == ([(("d",), "CPUs allowed: d has about 8, 3 hosts have about 96.")] if found else [])


def mounted(kind, *, exists=True, named=True):
    folder = {"path": "/scratch", "exists": exists, "free": 1 << 40, "size": 1 << 41, "writable": True, "type": kind}
    return {"disk": ProbeResult("disk", {"folders": [folder], "named": named})}


def test_a_shared_folder_that_one_host_has_not_mounted():
    hosts = [HostProbes(name, mounted("nfs4")) for name in "abc"]
    (finding,) = hosts_differ.judge(Inspection([*hosts, HostProbes("d", mounted("ext4", exists=False))]))
    assert finding.subject.hosts == ("d",)
    assert finding.message == "File system of /scratch: d has ext4 (no such folder yet), 3 hosts have nfs4."
    temporary = [HostProbes(name, mounted("tmpfs" if name == "a" else "ext4", named=False)) for name in "abcd"]
    assert hosts_differ.judge(Inspection(temporary)) == [], "a folder that nobody named may be of any kind"


@pytest.mark.parametrize(
    ("ports", "severity", "words"),
    [
        ({3: {"state": "1: DOWN", "phys_state": "2: Polling"}}, "error", "mlx5_3/1: DOWN (Polling): cable or far end"),
        ({3: {"state": "1: DOWN", "phys_state": "3: Disabled"}}, "warning", "mlx5_3/1: DOWN (Disabled): switched off"),
        ({n: {"state": "2: INIT"} for n in range(8)}, "warning", "no subnet manager and 4 more"),
        ({2: {"rate": "200 Gb/sec (2X NDR)"}, 6: {"rate": "100 Gb/sec (1X NDR)"}}, "error", "mlx5_6/1: 100 Gb/sec"),
        ({n: {"link_layer": "Ethernet"} for n in range(8)}, "error", "and 4 more: RoCE v1 only"),
    ],
)
def test_rdma_ports_that_are_not_as_they_should_be(tmp_path, ports, severity, words):
    root = trees.machine(tmp_path)
    for number, changes in ports.items():
        trees.port(root, f"mlx5_{number}", **changes)
    (finding,) = [finding for finding in inspected(root)[1].findings if finding.code == "PREH121"]
    assert finding.severity == severity
    assert words in finding.message


def test_the_second_port_of_a_card_may_have_no_cable(tmp_path):
    root = trees.machine(tmp_path, nics=2)
    trees.port(root, "mlx5_1", state="1: DOWN", phys_state="2: Polling")
    (finding,) = [finding for finding in inspected(root)[1].findings if finding.code == "PREH121"]
    assert finding.severity == "warning"


def test_ports_that_tell_nonsense_or_nothing(tmp_path):
    root = trees.machine(tmp_path)
    trees.port(root, "mlx5_3", rate="9" * 5000, **{"counters/link_downed": "9" * 5000})
    (root / "sys/class/infiniband/mlx5_2/ports/1/state").unlink()
    assert inspected(root)[0]["rdma-ports"].state == "healthy"


def test_an_address_that_two_hosts_have():
    names = {asker: {"a": ["10.0.0.1"], "b": ["10.0.0.2"]} for asker in "ab"}
    bridge = "172.17.0.1"

    def told(**own):
        return [f.subject.hosts for f in duplicate_address.judge(Inspection(names=names, addresses=own))]

    assert told(a=["10.0.0.1", bridge], b=["10.0.0.2", bridge]) == []
    assert told(a=["10.0.0.1", "10.0.0.2"], b=["10.0.0.2", bridge]) == [("a", "b")]
    assert told(a=["10.0.0.1", "10.0.0.2"], b=["10.0.0.1", "10.0.0.2"]) == [], "one machine"


def test_one_host_under_two_names():
    def host(name, *namespaces, boot="one"):
        names = {"hostname": "n1", "boot_id": boot, "namespaces": list(namespaces)}
        return HostProbes(name, {"names": ProbeResult("names", names)})

    own = {name: ["10.0.0.1"] for name in ("n1", "n1-ib", "pod")}
    hosts = [host("n1", "mnt:[1]"), host("n1-ib", "mnt:[1]"), host("pod", "mnt:[2]"), host("n2", "mnt:[1]", boot="two")]
    (told,) = duplicate_address.judge(Inspection(hosts, addresses=own))
    assert told.subject.hosts == ("n1", "n1-ib")
    assert "are the same host" in told.message


def test_what_gloo_takes_where_the_name_means_loopback():
    rule = HOST_RULES["interface"]
    shown = [{"name": "eth0", "flags": 1, "addresses": ["10.0.0.1/24"]}]
    for own in (["127.0.1.1"], ["10.9.9.9"], []):
        names = ProbeResult("names", {"addresses": own})
        told = rule.judge({"interfaces": shown}, HostProbes("a", {"names": names}), Launch(2))
        assert f"Gloo would use loopback ({own[0] if own == ['127.0.1.1'] else '127.0.0.1'})" in told.why


@pytest.mark.parametrize(("second", "judged"), [("one", "healthy"), ("two", "unhealthy")])
def test_namespaces_of_one_machine_need_no_name_of_their_own(second, judged):
    """Hosts of the same boot and name share both: only between machines does the name have to lead somewhere."""
    shown = ProbeResult("interfaces", {"interfaces": [{"name": "eth0", "flags": 1, "addresses": ["10.0.0.1/24"]}]})
    hosts = [
        HostProbes(name, {
            "names": ProbeResult("names", {"hostname": "vm", "addresses": ["127.0.0.1"], "boot_id": boot}),
            "interfaces": shown,
        })
        for name, boot in (("10.0.0.1", "one"), ("10.0.0.2", second))
    ]  # fmt: skip
    told = flow.judge(Inspection(hosts, Launch(2)))
    assert {check.state for checks in told.hosts.values() for check in checks if check.check == "interface"} == {judged}


def test_what_is_usual_between_hosts():
    def usual(*gbits):
        return usual_gbits([Rate("a", "b", value, 1) for value in gbits])

    assert usual() == 0
    assert usual(9, 10, 11) == 10
    assert usual(0.1, 9, 10, 11, 12) == 10.5, "the one slow pair does not count"
    assert usual(*[0.1] * 18, *[9.0, 10.0, 11.0] * 3) == 10, "three slow hosts of eight"
    assert usual(*[10.0] * 9, 100.0) == 10, "one fast pair does not make all others slow"
    assert usual(4, 5, 6, 8, 10, 13) == 7, "noise"
