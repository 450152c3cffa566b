"""Hosts that differ from all the others in what NCCL prints when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

LINE = "{host}:410{n}:410{n} [{n}] NCCL INFO "
TIMED_OUT = (
    "[rank{0}]:[E1115 00:40:10.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600089 milliseconds "
    "before timing out.\n"
)


def started(interfaces: dict[str, str], more: dict[str, str]) -> str:
    """What NCCL prints on these hosts, two ranks each."""
    text = ""
    for host, using in interfaces.items():
        for n in (0, 1):
            begin = LINE.format(host=host, n=n)
            text += f"{begin}Bootstrap : Using {using}<0>\n{begin}{more.get(host, 'Using network IB')}\n"
    return text


def verdict(folder: Path, text: str):
    (folder / "job.log").write_text(text + "".join(TIMED_OUT.format(rank) for rank in range(6)))
    return diagnose([folder], jobs=1).verdict


def test_a_host_on_another_network(tmp_path):
    told = verdict(tmp_path, started({"a1": "bond0:10.4.0.1", "b2": "bond0:10.4.0.2", "c3": "eno1:172.16.8.3"}, {}))
    assert (told.cause, told.culprits.hosts) == ("wrong-interface", ("c3",))


@pytest.mark.parametrize("odd", ["bond1:10.4.0.3", "bond0:10.9.0.3"])
def test_another_name_or_another_subnet_alone_is_usual(odd, tmp_path):
    told = verdict(tmp_path, started({"a1": "bond0:10.4.0.1", "b2": "bond0:10.4.0.2", "c3": odd}, {}))
    assert told.cause != "wrong-interface"


def test_a_variable_that_one_host_alone_has(tmp_path):
    same = dict.fromkeys(("a1", "b2", "c3"), "bond0:10.4.0.1")
    off = "NCCL_IB_DISABLE set by environment to 1.\n" + LINE.format(host="b2", n=0) + "Using network Socket"
    told = verdict(tmp_path, started(same, {"b2": off}))
    assert (told.cause, told.culprits.hosts) == ("wrong-environment", ("b2",))
    assert "NCCL_IB_DISABLE=1" in told.summary
