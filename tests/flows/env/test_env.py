"""Versions and fabric of a host, and the settings that follow."""

import pytest

from whichrank.flows.env.lint import host_devices, lint, present_environment
from whichrank.flows.env.recommend import environment, host_fabric
from whichrank.model.errors import UsageError
from whichrank.report._environment import WRITERS
from whichrank.source import launch


def host(root, *, net=(), rdma=()):
    for name in net:
        (root / "net" / name).mkdir(parents=True)
    for name, driver, layer in rdma:
        port = root / "infiniband" / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(f"{layer}\n")
        device = root / "infiniband" / name / "device"
        device.mkdir()
        target = root / "drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("net", "rdma", "fabric"),
    [
        (["lo", "eth0", "ib0"], [("mlx5_0", "mlx5_core", "InfiniBand")], "infiniband"),
        (["lo", "ens1"], [("mlx5_0", "mlx5_core", "Ethernet")], "roce"),
        (["lo", "ens5"], [("rdmap0s6", "efa", "Unspecified")], "efa"),
        (["lo", "docker0", "eth0"], [], "ethernet"),
        (["lo", "docker0"], [], "nvlink"),
        ([], [], None),
    ],
)
def test_the_fabric_of_a_host(tmp_path, net, rdma, fabric):
    root = host(tmp_path, net=net, rdma=rdma)
    assert host_fabric(root) == fabric
    assert host_devices(root) == (frozenset(net), frozenset(name for name, _, _ in rdma))


def test_what_the_user_set_is_left_alone():
    chosen = environment("debug", torch="2.13.0", environ={"NCCL_DEBUG": "WARN"})
    assert chosen.kept == ("NCCL_DEBUG",)
    assert "NCCL_DEBUG" not in {s.name for s in chosen.settings}


def test_a_version_that_is_none():
    with pytest.raises(UsageError):
        environment("debug", torch="newest")


def test_nccl_of_the_installation_is_not_mixed_with_another_torch(monkeypatch):
    monkeypatch.setattr("whichrank.flows.env.recommend.installed", lambda: ("2.13.0", "2.99"))
    assert environment("debug").nccl == "2.99"
    assert environment("debug", torch="2.7").nccl is None


NAMES = {"shell": "x.sh", "slurm": "x.sh", "docker": "Dockerfile", "env-file": "x.env", "kubernetes": "x.yaml",
         "python": "x.py"}  # fmt: skip


@pytest.mark.parametrize("purpose", ["debug", "production", "bench"])
@pytest.mark.parametrize("torch", ["2.6.0", "2.9.1", "2.13.0", "2.15.0"])
@pytest.mark.parametrize("format_", sorted(WRITERS))
def test_what_is_recommended_is_read_back_and_found_right(purpose, torch, format_):
    chosen = environment(purpose, out="/data/run 7", torch=torch, nccl="2.28.9", fabric="ethernet", environ={})
    text = "".join(WRITERS[format_](chosen.settings, chosen.out))
    file = launch.read(text.encode(), NAMES[format_])
    read = {a.name: a.value for a in file.assignments if a.name in {s.name for s in chosen.settings}}
    assert read == {s.name: s.value for s in chosen.settings}
    assert lint([file], torch=torch, nccl="2.28.9").findings == ()


def test_the_present_environment_and_the_files_behind_it(tmp_path):
    (tmp_path / ".nccl.conf").write_text("NCCL_ALGO=Ring\nNCCL_TIMEOUT=3\nNCCL_DEBUG=WARN\n")
    files = present_environment({"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "^lo"}, str(tmp_path))
    found = lint(files, interfaces=["lo"], hcas=[]).findings
    assert {(f.code, f.evidence[0].locator) for f in found} >= {
        ("ENV102", "line 2"),
        ("ENV115", "line 1"),
        ("ENV114", "variable NCCL_SOCKET_IFNAME"),
    }
