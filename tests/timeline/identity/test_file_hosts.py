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
