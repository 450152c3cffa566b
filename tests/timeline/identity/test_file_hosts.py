"""Hosts by the names of files."""

from __future__ import annotations

import pytest

from whichrank.timeline.identity.file_hosts import hosts_of_files


@pytest.mark.parametrize(
    ("files", "named", "expected"),
    [
        (["n011.err", "n012.err", "n012.dmesg"], [], {"n011.err": "n011", "n012.err": "n012", "n012.dmesg": "n012"}),
        (["spark-1.log", "spark-2.log"], [], {"spark-1.log": "spark-1", "spark-2.log": "spark-2"}),
        (["ume.log", "ume.dmesg", "sakura.log"], [], {"ume.log": "ume", "ume.dmesg": "ume", "sakura.log": "sakura"}),
        (["eureka.txt", "notes.txt"], ["eureka"], {"eureka.txt": "eureka"}),
        (["logs/smi-h200-b.csv"], ["h200-a", "h200-b"], {"logs/smi-h200-b.csv": "h200-b"}),
        (["rank0.log", "rank1.log"], [], {}),
        (["train.log", "nccl.log"], [], {}),
        (["a.log", "b.log"], [], {}),
        (["out1.txt", "out2.txt"], [], {}),
        (["train-0.log", "train-1.log", "run_worker_3.log", "run_worker_4.log"], [], {}),
    ],
)  # fmt: skip
def test_which_names_are_hosts(files, named, expected):
    assert hosts_of_files(files, named) == expected


def test_a_name_of_a_file_gives_way_to_what_its_lines_say():
    files, spoken = ["node0.log", "node1.log"], {"node0.log": {"kt-a"}, "node1.log": {"kt-b"}}
    assert hosts_of_files(files, ["kt-a", "kt-b"], spoken) == {"node0.log": "kt-a", "node1.log": "kt-b"}


def test_files_whose_lines_name_the_same_host_keep_their_names():
    files, spoken = ["node0.log", "node1.log"], {"node0.log": {"box"}, "node1.log": {"box"}}
    assert hosts_of_files(files, ["box"], spoken) == {"node0.log": "node0", "node1.log": "node1"}
