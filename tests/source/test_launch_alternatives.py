"""Alternatives of a launch file: what somebody has to ask for is not in force, and two of them never meet."""

from __future__ import annotations

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch

RUN = "torchrun --standalone --nproc-per-node=8 train.py\n"


def found(name: str, text: str) -> list[str]:
    return [f.message for f in lint([launch.read(text.encode(), name)]).findings if f.severity != "info"]


ASKED = {
    "case": "case ${LOG:-warn} in\n warn) export NCCL_DEBUG=WARN ;;\n full) export NCCL_DEBUG=INFO ;;\nesac\n",
    "switch": 'if [ -n "$DEBUG" ]; then\n export CUDA_LAUNCH_BLOCKING=1\nfi\n',
    "list": "[[ ${LOUD:-0} == 1 ]] && export NCCL_DEBUG=INFO\n(( ${X:-0} )) && export NCCL_DEBUG=INFO\n",
    "arguments": 'V=false\nfor a in "$@"; do case $a in -v) V=true ;; esac; done\n$V && export NCCL_DEBUG=INFO\n',
    "two ways": "case $1 in\n ib) export NCCL_IB_HCA=mlx5_0 ;;\n tcp) export NCCL_IB_DISABLE=1 ;;\nesac\n",
    "check": "NCCL_DEBUG=INFO srun ./build/all_reduce_perf -b 8\n",
}


@pytest.mark.parametrize("name", ASKED)
def test_what_must_be_asked_for_is_not_left_on(name: str) -> None:
    assert found("train_prod.sh", ASKED[name] + RUN) == []


def test_what_holds_by_default_is() -> None:
    text = "case ${LOG:-info} in\n info) export NCCL_DEBUG=INFO ;;\n warn) export NCCL_DEBUG=WARN ;;\nesac\n"
    assert len(found("train_prod.sh", text + RUN)) == 1


def test_an_alternative_may_contradict_itself() -> None:
    text = 'if [ -n "$TCP" ]; then\n export NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0\nfi\n'
    assert len(found("train.sh", text + RUN)) == 1


def test_presets_of_a_program() -> None:
    text = (
        "import argparse, os, subprocess\n"
        'BASE = {"NCCL_IB_HCA": "mlx5_0"}\n'
        'SLOW = {"CUDA_LAUNCH_BLOCKING": "1"}\n'
        'MORE = {"none": {}, "loud": {"NCCL_DEBUG": "TRACE"}, "tcp": {"NCCL_IB_DISABLE": "1"}}\n'
        "p = argparse.ArgumentParser()\n"
        'p.add_argument("--slow", action="store_true")\n'
        'p.add_argument("--more", default="none")\n'
        "a = p.parse_args()\n"
        "env = {**os.environ, **BASE, **MORE[a.more]}\n"
        "if a.slow:\n    env.update(SLOW)\n"
        'subprocess.run(["torchrun", "--nproc-per-node=8", "t.py"], env=env)\n'
    )
    assert found("launch.py", text) == []
    assert len(found("launch.py", text.replace('default="none"', 'default="loud"'))) == 1


def test_recipes_are_runs_of_their_own() -> None:
    text = f"export NCCL_IB_HCA := mlx5_0\ntrain:\n\t{RUN}tcp:\n\tNCCL_IB_DISABLE=1 {RUN}"
    assert found("Makefile", text) == []


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("Makefile", f"export NCCL_DEBUG = INFO  # some\ntrain:\n\t{RUN}", "blanks"),
        ("a.sh", "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=h:99999 train.py\n", "not a port"),
        ("a.sh", f"echo $SLRUM_NNODES\n{RUN}", "SLURM_NNODES"),
        ("a.sh", "#SBATCH --nodes=2\nsrun bash -c 'LOCAL_RANK=$SLURM_PROCID python train.py'\n", "over all hosts"),
    ],
)
def test_mistakes(name: str, text: str, word: str) -> None:
    assert any(word in message for message in found(name, text))
