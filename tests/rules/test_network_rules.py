"""Rules on connections: real jobs on hosts of namespaces, broken in known ways, and what must accuse nobody."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.evidence_at import SAMPLES
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Finding

CODES = ("NETI152", "NETI153", "NETI154", "NETI155", "RDMA151", "RDMA154", "HOST156", "HOST157")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    with tarfile.open(SAMPLES / "network.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def told(*paths: Path) -> dict[str, Finding]:
    """What the rules on connections hold against somebody."""
    findings = diagnose(list(paths), jobs=1).findings
    return {f.code: f for f in findings if f.code in CODES and f.severity != "info"}


def only(*paths: Path) -> Finding:
    found = told(*paths)
    assert len(found) == 1, found
    return next(iter(found.values()))


@pytest.mark.parametrize(
    ("case", "cause", "hosts", "words"),
    [
        ("drop", "firewall", ("node2",), "between node2 and the other hosts are dropped"),
        ("oneway", "firewall", ("node2",), "on the way from node2"),
        ("pair", "firewall", (), "between node1 and node2 are dropped in both directions"),
        ("mtu", "mtu-mismatch", ("node2",), "Segments of 8948 bytes don't get through"),
        ("lose", "packet-loss", ("node2",), "1.6% of the segments are sent again, 0.00% elsewhere"),
        ("limit", "slow-network", ("node2",), "a round trip takes 49 ms"),
    ],
)
def test_sockets_of_all_hosts(samples, case, cause, hosts, words):
    finding = only(samples / "ss" / case)
    assert (finding.cause, finding.subject.hosts) == (cause, hosts)
    assert words in finding.message
    assert all(ref.quote.startswith("ESTAB") for ref in finding.evidence)


def test_a_link_is_named_where_two_hosts_are_concerned(samples):
    (link,) = only(samples / "ss" / "pair").subject.links
    assert {link.a.host, link.b.host} == {"node1", "node2"}


def test_nothing_is_wrong_with_a_healthy_network(samples):
    assert not told(samples / "ss" / "none")


def test_timers_alone_are_enough(samples):
    """`ss -o` without `-i`: who sends again without an answer, but not which direction is dead."""
    finding = only(samples / "ss" / "drop_without_info")
    assert (finding.cause, finding.subject.hosts) == ("firewall", ("node2",))
    assert "on the way" not in finding.message
    assert finding.grade < only(samples / "ss" / "drop").grade


def test_a_host_that_nothing_was_heard_of(samples):
    folder = samples / "ss" / "drop"
    finding = only(folder / "ss-node1.txt", folder / "ss-node3.txt")
    assert (finding.cause, finding.subject.hosts) == ("host-lost", ("10.77.0.2",))
    assert [a.cause for a in finding.alternatives] == ["firewall"]


def test_links_that_nobody_looked_at_are_not_said_to_be_up(samples):
    finding = only(samples / "ss" / "drop")
    assert "links are up" not in finding.message
    assert "host-lost" in [a.cause for a in finding.alternatives]
    assert "links are up" in only(samples / "bundles" / "network_drop").message


@pytest.mark.parametrize(
    ("fault", "cause", "ranks"),
    [
        ("network_drop", "firewall", (1,)),
        ("link_down", "host-lost", (2,)),
        ("path_mtu", "mtu-mismatch", (2,)),
        ("packet_loss", "packet-loss", (2,)),
        ("rate_limit", "slow-network", (1,)),
        ("link_flap", "ib-link-flap", (3,)),
        ("firewall_ports", "firewall", (0,)),
        ("firewall_start", "firewall", (0,)),
    ],
)
def test_what_ranks_write_of_themselves(samples, fault, cause, ranks):
    verdict = diagnose([samples / "bundles" / fault], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, ranks), verdict.summary


@pytest.mark.parametrize("case", ["stopped_on_hosts", "asleep_on_hosts", "healthy_on_hosts"])
def test_a_rank_that_does_not_read_or_send_is_no_fault_of_the_network(samples, case):
    assert not told(samples / "bundles" / case)


def test_a_full_receiver_is_no_fault_of_the_network(tmp_path):
    """Zero window: everything sent was acknowledged, the sender only asks for room."""
    lines = (
        "State Recv-Q Send-Q Local Address:Port Peer Address:Port",
        "ESTAB 0 2565376 10.0.0.1:40001 10.0.0.2:50001 timer:(persist,6.400ms,5)",
        "\t cubic rto:204 backoff:5 rtt:0.1/0.05 mss:1448 bytes_sent:90000 bytes_acked:90001 lastack:2900 notsent:9999",
        "ESTAB 6291456 0 10.0.0.2:50001 10.0.0.1:40001",
        "\t cubic rto:204 rtt:0.1/0.05 mss:1448 bytes_received:9000000 lastrcv:61000 lastack:3000",
    )
    (tmp_path / "ss-node1.txt").write_text("\n".join(lines[:3]) + "\n")
    (tmp_path / "ss-node2.txt").write_text("\n".join((lines[0], *lines[3:])) + "\n")
    assert not told(tmp_path)


def test_loss_and_slowness_of_a_job_that_stands_still_are_not_told(samples, tmp_path):
    """What was sent again before the end says nothing when all is silent."""
    for path in (samples / "ss" / "lose").iterdir():
        text = re.sub(r"lastack:\d+", "lastack:90000", path.read_text())
        (tmp_path / path.name).write_text(text)
    assert not told(tmp_path)


def test_services_of_the_host_are_not_the_jobs(tmp_path):
    text = (
        "State Recv-Q Send-Q Local Address:Port Peer Address:Port\n"
        "ESTAB 0 500000 10.0.0.1:901 10.0.0.9:2049 timer:(on,12sec,9)\n"
        "ESTAB 0 900 10.0.0.1:22 10.0.0.7:50312 timer:(on,12sec,9)\n"
    )
    (tmp_path / "ss-node1.txt").write_text(text)
    assert not told(tmp_path)


@pytest.mark.parametrize(("state", "tries", "accused"), [("SYN-SENT", 4, True), ("SYN-SENT", 1, False)])
def test_a_connection_that_gets_no_answer(tmp_path, state, tries, accused):
    head = "State Recv-Q Send-Q Local Address:Port Peer Address:Port\n"
    asked = f"{state} 0 1 10.0.0.2:41234 10.0.0.1:29500 timer:(on,3.200ms,{tries})\n"
    (tmp_path / "ss-node2.txt").write_text(head + asked)
    finding = told(tmp_path).get("NETI153")
    assert (finding is not None) == accused
    if finding is None:
        return
    assert {"host-lost", "wrong-interface"} == {a.cause for a in finding.alternatives}
    # The other end has half of the connection: the host is up, and its answers are lost.
    (tmp_path / "ss-node1.txt").write_text(f"{head}SYN-RECV 0 0 10.0.0.1:29500 10.0.0.2:41234 timer:(on,1sec,2)\n")
    proven = told(tmp_path)["NETI153"]
    assert proven.grade > finding.grade
    assert not proven.alternatives
    assert "its answer is dropped" in proven.message


def test_a_slow_cable_by_all_connections_that_starve():
    """The round trip of one of the two was short at that moment; its rate tells all the same."""
    finding = only(SAMPLES / "hardware" / "slow_cable")
    assert (finding.cause, finding.subject.ranks) == ("slow-network", (1,))
    assert "between 10.77.0.2 (rank 1) and the other hosts crawls" in finding.message


def test_a_host_without_gpudirect_where_others_use_it(tmp_path):
    line = "{0}:100:101 [0] NCCL INFO Channel {1:02}/0 : {2}[0] -> {3}[0] [{4}] via NET/IB/1{5}\n"
    text = "".join(
        line.format("gpu32", n, 0, 8, "send", "/GDRDMA") + line.format("gpu37", n, 0, 8, "receive", "")
        for n in range(4)
    )
    (tmp_path / "nccl.log").write_text(text)
    (tmp_path / "ticket.txt").write_text("We see poor performance between these two nodes. No errors.\n")
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "gdr-disabled", ("gpu37",))
    (tmp_path / "nccl.log").write_text(text.replace("/GDRDMA", ""))
    assert "RDMA211" not in [finding.code for finding in diagnose([tmp_path], jobs=1).findings]


def test_a_job_at_work_that_somebody_cancelled_was_too_slow(tmp_path):
    line = "{0}:100:101 [0] NCCL INFO Channel {1:02}/0 : {2}[0] -> {3}[0] [{4}] via NET/IB/1{5}\n"
    text = "".join(
        line.format("gpu32", n, 0, 8, "send", "/GDRDMA") + line.format("gpu37", n, 0, 8, "receive", "")
        for n in range(4)
    )
    steps = "".join(f"step {step} loss 2.1\n" for step in range(9))
    end = "slurmstepd: error: *** STEP 9.0 ON gpu32 CANCELLED AT 2026-03-01T10:00:00 ***\n"
    (tmp_path / "train.log").write_text(text + steps + end)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "gdr-disabled", ("gpu37",))


def test_one_host_at_an_end_of_all_paths_that_lose_large_packets(tmp_path):
    lost = "[{}] ping -c3 -M do -s 8972 {}: 3 packets transmitted, 0 received, 100% packet loss\n"
    paths = (("n14", "n16"), ("n16", "n17"), ("n15", "n16"))
    (tmp_path / "check.log").write_text("".join(lost.format(*path) for path in paths))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == ("mtu-mismatch", ("n16",))


LINK = "2: ens5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc mq state UP mode DEFAULT group default qlen 1000\n"
TUNNEL = (
    "6: vxlan.calico: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc noqueue state UNKNOWN mode DEFAULT group default\n"
)


@pytest.mark.parametrize(
    ("mtus", "hosts"),
    [
        ([(9001, 8951), (1500, 8951), (9001, 8951)], ("ip-10-1",)),
        ([(9001, 8951), (1500, 1450), (9001, 8951)], ()),
        ([(1500, 8951)] * 3, ()),  # all alike: something else carries them
    ],
)
def test_an_overlay_that_is_larger_than_its_card(tmp_path, mtus, hosts):
    told = "".join(f"--- ip-10-{n}\n{LINK.format(card)}{TUNNEL.format(over)}" for n, (card, over) in enumerate(mtus))
    (tmp_path / "net.txt").write_text(told)
    found = diagnose([tmp_path], jobs=1)
    named = [f.subject.hosts for f in found.findings if f.cause == "mtu-mismatch"]
    assert named == ([hosts] if hosts else [])


PING = """[root@{0} ~]# ping -c {2} {1}
PING {1} (10.8.15.1) 56(84) bytes of data.

--- {1} ping statistics ---
{2} packets transmitted, {3} received, {4}% packet loss, time 2033ms

"""


def pings(*ways: tuple[str, str, int, int]) -> str:
    return "".join(PING.format(a, b, sent, back, 100 * (sent - back) // sent) for a, b, sent, back in ways)


@pytest.mark.parametrize(
    ("ways", "cause", "hosts"),
    [
        ([("node1", "node2", 3, 3), ("node1", "node3", 3, 0), ("node2", "node3", 3, 0)], "host-lost", ("node3",)),
        ([("node1", "node3", 3, 0), ("node2", "node3", 3, 0)], None, ()),  # pings may be blocked everywhere
        (
            [("node1", "node2", 3, 3), ("node1", "node3", 3, 0), ("node2", "node3", 3, 3)],
            None,
            (),
        ),  # somebody reaches it
        ([("node1", "node2", 3, 3), ("node1", "nas", 3, 0)], None, ()),  # no host of the job
        (
            [("node1", "node2", 100, 100), ("node1", "node3", 100, 88), ("node2", "node3", 100, 91)],
            "packet-loss",
            ("node3",),
        ),
        ([("node1", "node2", 100, 100), ("node1", "node3", 100, 99)], None, ()),  # one packet
    ],
)
def test_pings_between_hosts(tmp_path, ways, cause, hosts):
    (tmp_path / "ping.txt").write_text(pings(*ways))
    for host in ("node1", "node2"):
        lines = "".join(f"2026-11-19 10:59:{n:02}.994 {host} rank{host[-1]} INFO step {n} loss 2\n" for n in range(9))
        (tmp_path / f"{host}.log").write_text(lines)
    found = {f.cause: f for f in diagnose([tmp_path], jobs=1).findings if f.code in ("HOST159", "NETI156")}
    assert set(found) == ({cause} if cause else set())
    assert cause is None or found[cause].subject.hosts == hosts


def test_a_ping_of_large_packets_is_a_matter_of_the_mtu(tmp_path):
    text = pings(("node1", "node2", 3, 3), ("node1", "node3", 3, 0)).replace(
        "PING node3 (10.8.15.1) 56(84)", "PING node3 (10.8.15.1) 8972(9000)"
    )
    (tmp_path / "ping.txt").write_text(text)
    assert "HOST159" not in [f.code for f in diagnose([tmp_path], jobs=1).findings]


SS = """[root@{} ~]# ss -tn
State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
{}"""
ESTAB = "ESTAB    0      0      10.8.15.{}:{}    10.8.15.{}:{}\n"
ASKS = "SYN-SENT 0      1      10.8.15.13:{}    10.8.15.12:41157\n"


@pytest.mark.parametrize(("asked", "found"), [(2, True), (1, False)])
def test_requests_without_an_answer_below_prompts(tmp_path, asked, found):
    """Of a listing without timers: several requests to a host that others reach."""
    text = SS.format("nodea", ESTAB.format(11, 42169, 13, 52720) + ESTAB.format(11, 42169, 12, 42994))
    text += "\n" + SS.format("nodeb", ESTAB.format(12, 42994, 11, 42169))
    text += "\n" + SS.format(
        "nodec", "".join(map(ASKS.format, range(34978, 34978 + asked))) + ESTAB.format(13, 52720, 11, 42169)
    )
    (tmp_path / "ss.txt").write_text(text)
    judged = told(tmp_path)
    assert ("NETI153" in judged) == found
    if found:
        (link,) = judged["NETI153"].subject.links
        assert {link.a.host, link.b.host} == {"nodeb", "nodec"}


@pytest.mark.parametrize(("policy", "hosts"), [("drop", ("node1",)), ("accept", ())])
def test_the_host_whose_firewall_drops_what_it_does_not_list(tmp_path, policy, hosts):
    head = "[root@node2 ~]# ss -tan state syn-sent\nRecv-Q Send-Q Local Address:Port  Peer Address:Port Process\n"
    rows = "".join(f"0      1        10.8.15.2:{port}  10.8.15.1:43681\n" for port in (48940, 48946))
    (tmp_path / "node2.net.txt").write_text(head + rows + pings(("node2", "node1", 3, 3)))
    rules = f"type filter hook input priority filter; policy {policy};\n\t\ttcp dport 22 accept\n"
    (tmp_path / "nft_node1.txt").write_text(f"root@node1:~# nft list ruleset\nchain input {{\n\t\t{rules}}}\n")
    assert told(tmp_path)["NETI153"].subject.hosts == hosts


def test_a_listing_of_requests_alone_and_a_peer_that_answers_pings(tmp_path):
    head = "[root@node2 ~]# ss -tan state syn-sent\nRecv-Q Send-Q Local Address:Port  Peer Address:Port Process\n"
    rows = "".join(f"0      1        10.8.15.2:{port}  10.8.15.1:43681\n" for port in (48940, 48946))
    (tmp_path / "node2.net.txt").write_text(head + rows)
    assert "NETI153" not in told(tmp_path)
    (tmp_path / "node2.net.txt").write_text(head + rows + pings(("node2", "node1", 3, 3)))
    (link,) = told(tmp_path)["NETI153"].subject.links
    assert {link.a.host, link.b.host} == {"node1", "node2"}


def test_established_sockets_alone_are_listed_without_their_state(tmp_path):
    row = "0      0      10.20.4.1{}:47252    10.20.4.1{}:37965\n\t ts sack rto:204 mss:1448 bytes_sent:48015568 "
    row += "bytes_retrans:{} data_segs_out:33159 lastsnd:20 lastrcv:20 lastack:20 retrans:0/{} rtt:0.3/0.1 busy:260ms\n"
    head = "Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
    for host, peer, lost in ((1, 3, 990), (2, 1, 0)):
        text = f"[gn0{host}]# ss -tino state established\n" + head + row.format(host, peer, 1448 * lost, lost)
        (tmp_path / f"net.gn0{host}.txt").write_text(text)
    assert told(tmp_path)["NETI154"].cause == "packet-loss"


PROCESS = (
    "[ml-05] environment of the training processes\nGLOO_SOCKET_IFNAME={}\nMASTER_ADDR=ml-04\nRANK={}\nWORLD_SIZE=4\n\n"
)
REFUSED = (
    "[rank{}]: RuntimeError: [gloo/transport/tcp/pair.cc:144] no error, local=[127.0.0.1]:23246, "
    "remote=[127.0.0.1]:33178, error=SO_ERROR: Connection refused, remote=[127.0.0.1]:33178\n"
)


@pytest.mark.parametrize(("chosen", "ranks"), [(("eth0", "eth0", "lo", "lo"), (2, 3)), (("lo",) * 4, ())])
def test_ranks_that_were_started_with_the_loopback_interface(tmp_path, chosen, ranks):
    (tmp_path / "env.txt").write_text("".join(PROCESS.format(name, rank) for rank, name in enumerate(chosen)))
    (tmp_path / "job.log").write_text("world size 4\n" + "".join(map(REFUSED.format, (0, 1))))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks) == ("wrong-interface", ranks)


def test_a_peer_without_a_name_is_no_failure(tmp_path):
    """The connection stands; only the name for the log is missing."""
    warns = "[W1119 10:47:51.2 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3\n"
    (tmp_path / "job.log").write_text(warns * 4 + "".join(f"step {n} loss 2.{n}\n" for n in range(9)))
    assert diagnose([tmp_path], jobs=1).verdict.category == "healthy"


@pytest.mark.parametrize(("hosts", "named"), [(("hera", "zeus"), ("zeus",)), (("hera", "zeus", "ares"), ())])
def test_the_one_other_host_announced_the_loopback_address(tmp_path, hosts, named):
    listed = "".join(
        f"[{host}] ip -br addr\nlo               UNKNOWN        127.0.0.1/8 ::1/128\n"
        f"enp3s0           UP             192.168.88.2{n}/24\n\n"
        for n, host in enumerate(hosts)
    )
    (tmp_path / "ip_addr.txt").write_text(listed)
    (tmp_path / "hera.log").write_text("".join(map(REFUSED.format, (0, 1))))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == ("wrong-interface", named)


def test_getent_lists_kinds_of_sockets_and_no_hosts(tmp_path):
    asked = "{0}$ getent ahostsv4 $(hostname)\n{1}       STREAM {0}\n{1}       DGRAM\n{1}       RAW\n"
    refused = "RuntimeError: [gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection refused, "
    (tmp_path / "job.log").write_text(f"[rank0]: {refused}remote=[127.0.1.1]:35011\n")
    for host, address in (("lab-1", "192.168.50.31"), ("lab-2", "127.0.1.1")):
        (tmp_path / host).mkdir()
        (tmp_path / host / "addr.txt").write_text(asked.format(host, address))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == ("hostname-resolution", ("lab-2",))


STORE = (
    "[rank{0}]:[W327 14:00:05.0 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=71, addr=[n-{0}]:46836, "
    "remote=[svc-kv-02]:6400): Broken pipe\n"
)


def test_the_host_of_a_store_of_its_own(tmp_path):
    lines = "".join(f"[rank{n}]: rank={n} host=n-{n} pid={700 + n}\n" for n in range(4))
    (tmp_path / "crew.out").write_text(lines + "".join(map(STORE.format, range(4))))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == ("store-lost", ("svc-kv-02",))


@pytest.mark.parametrize(("interface", "cause"), [("ibp75s0", "wrong-interface"), ("eno1", "unknown")])
def test_first_sockets_that_fail_over_ip_on_infiniband(tmp_path, interface, cause):
    lines = (
        f"a100-03:2331:2666 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB {interface}:192.168.0.103<0>\n"
        "a100-03:2330:2658 [2] NCCL INFO misc/socket.cc:567 -> 2\n"
        "a100-03:2330:2658 [2] NCCL INFO bootstrap.cc:270 -> 2\n"
    )
    (tmp_path / "nccl.log").write_text(lines)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == (cause, ())


@pytest.mark.parametrize(
    ("ways", "hosts"),
    [
        ([("rx1", "rx2", 3), ("rx1", "rx3", 0), ("rx2", "rx3", 0)], ("rx3",)),
        ([("rx1", "rx3", 0), ("rx2", "rx3", 3)], ("rx1",)),
        ([("rx1", "rx3", 0)], ()),
        ([("rx1", "rx2", 3), ("rx1", "rx3", 3)], None),
    ],
)
def test_large_pings_that_are_lost_where_small_ones_pass(tmp_path, ways, hosts):
    small = pings(*((a, b, 3, 3) for a, b, _ in ways))
    large = (
        pings(*((a, b, 3, back) for a, b, back in ways)).replace("56(84)", "8972(9000)").replace("-c ", "-s 8972 -c ")
    )
    (tmp_path / "pings.txt").write_text(small + large)
    (tmp_path / "job.log").write_text("".join(f"[rank0]: step {n} loss 2.{n}\n" for n in range(3)))
    found = [f for f in diagnose([tmp_path], jobs=1).findings if f.cause == "mtu-mismatch"]
    assert [f.subject.hosts for f in found] == ([] if hosts is None else [hosts])


def test_the_process_of_a_store_that_was_killed(tmp_path):
    """Every rank lost the store, so none of them was killed, and what ended well was another program."""
    (tmp_path / "coordinator.log").write_text(
        "2026-11-19 13:02:19 coordinator on orch listening on 29400\n"
        "run.sh: line 3: 10244 Killed   python coordinator.py\n2026-11-19 13:03:24 coordinator exited with 0\n"
    )
    lost = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."
    for rank in range(4):
        steps = "".join(f"2026-11-19 13:03:0{n} learner {rank}: episode {n}0 loss 0.{n}\n" for n in range(1, 5))
        raised = (
            f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/rl/learn.py", line 12, in main\n'
        )
        (tmp_path / f"learner-{rank}.log").write_text(f"{steps}{raised}[rank{rank}]: {lost}\n")
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.category, found.cause, found.culprits.hosts) == ("crash", "store-lost", ("orch",))
