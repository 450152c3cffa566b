"""What is easily overlooked in a line: another field, a repeated message, an address family, the rank at its end."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.grades import SUPPORTED


def verdict(folder, files):
    return diagnose([texts.write(folder, files)], jobs=1).verdict


THROTTLED = '{{"time": "2025-07-18T13:07:07.521Z", "node": "mx14", "gpu": 2, "msg": "clocks_event_reasons changed", "reasons": [{0}], "sm_mhz": 735}}\n'


@pytest.mark.parametrize(("reason", "tells"), [("hw_thermal_slowdown", True), ("gpu_idle", False)])
def test_another_field_of_a_record(tmp_path, reason, tells):
    found = verdict(tmp_path, {"events.jsonl": THROTTLED.format(f'"{reason}"') * 3})
    assert (found.cause == "gpu-thermal-or-power" and found.confidence > SUPPORTED) == tells


def test_what_ray_prints_once_for_many_is_nobodys_own(tmp_path):
    line = "(RayTrainWorker pid=954, ip=10.67.1.2) p5-a:954:313 [6] nccl_net_ofi_create_plugin:1067 NCCL WARN NET/OFI aws-ofi-nccl initialization failed{0}\n"
    assert verdict(tmp_path, {"a.log": line.format(" [repeated 15x across cluster]")}).culprits.ranks == ()


def test_a_store_that_is_tried_by_ipv6_first(tmp_path):
    tried = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node0]:23457 (errno: 97 - Address family not supported by protocol).\n"
    raised = texts.ranks(2, {1: texts.traceback("ValueError: no such label")}, "")
    found = verdict(tmp_path, {"launch.log": tried, **raised})
    assert (found.cause, found.culprits.ranks) == ("rank-exception", (1,))


def test_a_rank_at_the_end_of_a_line(tmp_path):
    skipped = "2025-01-22,21:05:50 | WARNING | Handling webdataset error (ReadError('unexpected end of data', '/mnt/00413.tar')). Ignoring. (rank 3)\n"
    late = "".join(
        f"[rank{rank}]:[E122 21:30:22.815003672 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2381, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
        for rank, op, size in [
            (0, "ALLGATHER", 65536),
            (1, "ALLGATHER", 65536),
            (2, "ALLGATHER", 65536),
            (3, "ALLREDUCE", 1),
        ]
    )
    found = verdict(tmp_path, {"out.log": skipped + late})
    assert (found.cause, found.culprits.ranks) == ("uneven-inputs", (3,))


def test_a_clock_that_is_ahead_drops_all_others(tmp_path):
    dead = "May 27 11:0{1}:4{1} cn3 torchrun[3120]: D0527 11:0{1}:4{1}.162000 3120 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:492] Detected dead node '{0}_2207_0', removing it from the rendezvous\n"
    log = "May 27 11:06:39 cn3 chronyd[811]: System clock wrong by -97.402113 seconds\n"
    log += "".join(dead.format(host, n) for n in range(3) for host in ("cn1", "cn2"))
    log += "May 27 11:15:05 cn1 torchrun[2207]: torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
    found = verdict(tmp_path, {"syslog.txt": log})
    assert (found.cause, found.culprits.hosts) == ("clock-skew", ("cn3",))


def test_cpus_that_openmp_may_not_use(tmp_path):
    found = verdict(
        tmp_path, {"a.log": "".join(f"OMP: Warning #124: Ignoring invalid OS proc ID {n}.\n" for n in range(1, 6))}
    )
    assert (found.category, found.cause) == ("slow", "cpu-starved")


def test_what_fails_to_connect_and_freezes_hangs(tmp_path):
    note = "The main node fails to establish communication, causing the program to freeze.\n"
    log = "[W715 20:00:39.842901446 socket.cpp:752] [c10d] The IPv6 network addresses of (node0, 59699) cannot be retrieved (gai error: -2 - Name or service not known).\n"
    found = verdict(tmp_path, {"context.txt": note, "worker.log": log})
    assert (found.category, found.cause) == ("hang", "hostname-resolution")
