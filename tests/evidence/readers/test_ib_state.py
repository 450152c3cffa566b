"""The reader of network ports: every command's shape, and files of sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import ib_state
from whichrank.model.contracts import Item, Reading
from whichrank.records.network import PortState

IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 12
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
"""
IBSTATUS = """\
Infiniband device 'mlx5_2' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:946d:ae03:0093:6c3e
\tstate:\t\t 2: INIT
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand
"""
DEVINFO = """\
hca_id:\tmlx5_3
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet
"""
PERFQUERY = """\
# Port extended counters: Lid 12 port 1 (CapMask: 0x5300)
PortSelect:......................1
SymbolErrorCounter:..............0
LinkDownedCounter:...............255
PortXmitData:....................12345
"""
RDMA = """\
link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1 lmc 0 state DOWN physical_state POLLING
link mlx5_8/1 state ACTIVE physical_state LINK_UP netdev eth7
"""
ETHTOOL = "NIC statistics:\n     rx_packets: 1\n     rx_prio3_discards: 7\n     rx_discards_phy: 9\n"
IP = """\
2: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 0c:42:a1:00:00:00 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
     123456     100      0       5       0       0
    TX:  bytes packets errors dropped carrier collsns
       999      88      0       0       0       0
3: ib0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 2044 qdisc mq state DOWN mode DEFAULT group default qlen 256
"""
GREP = """\
/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:3
/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:65535
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err:2
/sys/class/infiniband/mlx5_1/ports/1/state:4: ACTIVE
"""
EVERYTHING = (IBSTAT, IBSTATUS, DEVINFO, PERFQUERY, RDMA, ETHTOOL, IP, GREP)


def read(folder: Path, text: str | bytes, label: str) -> Reading:
    path = folder / "evidence"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ib_state.read(Item(path, label, path.stat().st_size, 0))


def ports(folder: Path, text: str, label: str = "node3/ports.txt") -> list[PortState]:
    assert ib_state.sniff(text.encode()[:4096], label.rsplit("/", 1)[-1])
    return [port for port in read(folder, text, label).records if isinstance(port, PortState)]


def test_ibstat(tmp_path):
    up, down = ports(tmp_path, IBSTAT)
    assert (up.name, up.host, up.state, up.physical, up.rate) == ("mlx5_0/1", "node3", "ACTIVE", "LINKUP", 400.0)
    assert (up.layer, up.counters, up.ref.locator) == ("InfiniBand", {}, "line 5")
    assert (down.name, down.state, down.physical, down.rate) == ("mlx5_1/1", "DOWN", "POLLING", 10.0)


def test_ibstatus_and_devinfo(tmp_path):
    (port,) = ports(tmp_path, IBSTATUS)
    assert (port.name, port.state, port.physical, port.rate) == ("mlx5_2/1", "INIT", "LINKUP", 400.0)
    (port,) = ports(tmp_path, DEVINFO)
    assert (port.name, port.state, port.mtu, port.layer) == ("mlx5_3/1", "ACTIVE", 1024, "Ethernet")


def test_counters_of_perfquery_have_the_kernels_names(tmp_path):
    (port,) = ports(tmp_path, PERFQUERY, "node3/perfquery-mlx5_4.txt")
    assert (port.name, port.counters) == ("mlx5_4/1", {"symbol_error": 0, "link_downed": 255, "port_xmit_data": 12345})
    (port,) = ports(tmp_path, "$ perfquery -x -C mlx5_9 -P 1\n" + PERFQUERY, "counters.txt")
    assert port.name == "mlx5_9/1"


def test_rdma_in_text_and_json(tmp_path):
    down, up = ports(tmp_path, RDMA)
    assert (down.name, down.state, down.physical) == ("mlx5_7/1", "DOWN", "POLLING")
    assert (up.name, up.state, up.physical) == ("mlx5_8/1", "ACTIVE", "LINKUP")
    text = (
        '[{"ifindex":0,"ifname":"mlx5_0","port":1,"subnet_prefix":"fe80:0000:0000:0000","lid":1,"lmc":0,'
        '"state":"ACTIVE","physical_state":"LINK_UP"},{"ifindex":1,"ifname":"mlx5_1","port":1,"state":"DOWN",'
        '"physical_state":"DISABLED"}]\n'
    )
    assert [(p.name, p.state, p.physical) for p in ports(tmp_path, text)] == [
        ("mlx5_0/1", "ACTIVE", "LINKUP"), ("mlx5_1/1", "DOWN", "DISABLED"),
    ]  # fmt: skip


def test_interfaces(tmp_path):
    (port,) = ports(tmp_path, ETHTOOL, "node3/ethtool-S-enp92s0.txt")
    assert (port.name, port.counters["rx_prio3_discards"], port.counters["rx_discards_phy"]) == ("enp92s0", 7, 9)
    (port,) = ports(tmp_path, "Settings for eth0:\n\tSpeed: 100000Mb/s\n\tLink detected: yes\n")
    assert (port.name, port.rate, port.state) == ("eth0", 100.0, "UP")
    up, down = ports(tmp_path, IP)
    assert (up.name, up.mtu, up.state, up.counters["rx_dropped"], up.counters["tx_packets"]) == (
        "eth1",
        9000,
        "UP",
        5,
        88,
    )
    assert (down.name, down.state, down.physical) == ("ib0", "DOWN", "NOCARRIER")


def test_sysfs_by_grep_and_as_files(tmp_path):
    one, two = ports(tmp_path, GREP)
    assert one.counters == {"link_downed": 3, "symbol_error": 65535, "local_ack_timeout_err": 2}
    assert (two.name, two.state) == ("mlx5_1/1", "ACTIVE")
    label = "before/node3/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    (port,) = ports(tmp_path, "4\n", label)
    assert (port.name, port.host, port.counters) == ("mlx5_0/1", "node3", {"link_downed": 4})
    assert port.snapshot == "before/node3/sys/class/infiniband"
    (port,) = ports(tmp_path, "4: ACTIVE\n", label.replace("counters/link_downed", "state"))
    assert port.state == "ACTIVE"
    (port,) = ports(tmp_path, "400 Gb/sec (4X NDR)\n", label.replace("counters/link_downed", "rate"))
    assert port.rate == 400.0


def test_a_prompt_names_the_host_and_the_device(tmp_path):
    text = "".join(
        f"[{host}]$ ibv_devinfo -d mlx5_0\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t{mtu}\n"
        for host, mtu in (("dell-01", "4096 (5)"), ("xf-01", "1024 (3)"))
    )
    found = ports(tmp_path, text, "ticket.md")
    assert [(p.host, p.device, p.mtu) for p in found] == [("dell-01", "mlx5_0", 4096), ("xf-01", "mlx5_0", 1024)]


def test_two_looks_side_by_side(tmp_path):
    text = (
        '# grep "" /sys/class/infiniband/mlx5_0/ports/1/hw_counters/*      before     after\n'
        "out_of_sequence                 110422     9120337\nlocal_ack_timeout_err             2705       31877\n"
    )
    before, after = ports(tmp_path, text, "ticket.md")
    assert (before.counters["out_of_sequence"], after.counters["out_of_sequence"]) == (110422, 9120337)
    assert before.snapshot != after.snapshot


def test_no_port_is_no_healthy_port(tmp_path):
    reading = read(tmp_path, "Failed to open NETLINK_RDMA socket\n", "rdma.txt")
    assert (reading.records, reading.quality) == ([], "unusable")


def test_what_is_no_port():
    assert not ib_state.sniff(b"state: running\nrate: 5\n", "status.yaml")
    assert not ib_state.sniff(b"epoch 4\n", "state")
    assert not ib_state.sniff(b"node7:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n", "nccl.log")


def test_long_lines_take_linear_time(tmp_path):
    def work(n):
        long = (
            "link a/1 " + "ab 1 " * 6 * n,
            "1: a: <" + "A," * 10 * n,
            "ifname" * 4 * n,
            "\t" * 18 * n,
            '"ifname": "a", "port": 1' * n,
        )
        read(tmp_path, "\n".join([*EVERYTHING, *long * 30]), "ports.txt")

    cost.linear(work, 100)


@pytest.mark.parametrize("text", EVERYTHING)
@given(cut=st.integers(0, 700), noise=st.binary(max_size=200))
def test_survives_cuts_and_noise(tmp_path_factory, text, cut, noise):
    whole = text.encode()
    for data in (whole[:cut] + noise + whole[cut:], noise):
        ib_state.sniff(data[:4096], "state")
        read(tmp_path_factory.mktemp("fuzz"), data, "node3/sys/class/infiniband/mlx5_0/ports/1/state")
