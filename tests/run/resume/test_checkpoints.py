"""Checkpoints as torch, safetensors, transformers, DeepSpeed and Lightning write them, whole and half-written."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import needs
from whichrank import checkpoint
from whichrank.evidence.pickle import inert
from whichrank.model.errors import UnreadableError
from whichrank.run.resume import checkpoints
from whichrank.run.resume.checkpoint_layouts import shard_sizes, step_of

torch = needs.package("torch")


@cache
def state() -> dict[str, object]:
    return {"weight": torch.arange(4000.0), "bias": torch.ones(10), "step": 7}


def newest(folder: Path) -> str | None:
    found = checkpoints.find(folder).newest
    return found.path.name if found is not None else None


def reasons(folder: Path) -> dict[str, str]:
    return {each.path.name: each.why for each in checkpoints.find(folder).skipped}


def cut(path: Path, share: float = 0.6) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def save(path: Path, value: object = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state() if value is None else value, path)
    return path


def dcp(path: Path) -> Path:
    import torch.distributed.checkpoint as distributed

    with pytest.warns(UserWarning, match="single process"):
        distributed.save(dict(state()), checkpoint_id=path)
    return path


def later(path: Path, seconds: float) -> None:
    moment = time.time() + seconds
    os.utime(path, (moment, moment))


def test_nothing_there(tmp_path: Path) -> None:
    assert checkpoints.find(tmp_path) == checkpoints.Found()
    assert checkpoints.find(tmp_path / "absent") == checkpoints.Found()


def test_plain_files_by_their_end(tmp_path: Path) -> None:
    save(tmp_path / "step_100.pt")
    cut(save(tmp_path / "step_300.pt"))
    save(tmp_path / "step_200.pt")
    (tmp_path / "log.txt").write_text("training")
    assert newest(tmp_path) == "step_200.pt", "by their number, not by their age"
    assert reasons(tmp_path) == {"step_300.pt": "step_300.pt ends early: a zip without its end record"}
    found = checkpoints.find(tmp_path).newest
    assert found is not None
    assert (found.step, found.kind) == (200, "file")


def test_drafts_and_empty_files(tmp_path: Path) -> None:
    later(save(tmp_path / "last.pt"), -10)
    save(tmp_path / "last.pt.tmp")
    (tmp_path / "next.pt").touch()
    (tmp_path / "zeros.pt").write_bytes(bytes(5000))
    assert newest(tmp_path) == "last.pt"
    assert set(reasons(tmp_path)) == {"last.pt.tmp", "next.pt", "zeros.pt"}
    assert "draft" in reasons(tmp_path)["last.pt.tmp"]


def test_without_numbers_the_youngest(tmp_path: Path) -> None:
    for name, age in (("best.pt", -300), ("last.pt", -100), ("epoch=1-step=50.ckpt", -200)):
        later(save(tmp_path / name), age)
    assert newest(tmp_path) == "last.pt"


def test_the_file_of_one_rank_is_not_handed_to_all(tmp_path: Path) -> None:
    save(tmp_path / "step10_rank0.pt")
    save(tmp_path / "step10_rank1.pt")
    assert newest(tmp_path) is None
    assert "one rank" in reasons(tmp_path)["step10_rank1.pt"]


def test_distributed_checkpoint(tmp_path: Path) -> None:
    dcp(tmp_path / "step-10")
    dcp(tmp_path / "step-20")
    assert newest(tmp_path) == "step-20"
    shard = tmp_path / "step-20" / "__0_0.distcp"
    assert shard_sizes((tmp_path / "step-20/.metadata").read_bytes()) == {shard.name: shard.stat().st_size}
    cut(shard, 0.99)
    assert newest(tmp_path) == "step-10"
    assert "__0_0.distcp ends early" in reasons(tmp_path)["step-20"]
    shard.unlink()
    assert reasons(tmp_path)["step-20"] == "the shard __0_0.distcp is missing"


def test_distributed_checkpoint_without_its_metadata(tmp_path: Path) -> None:
    dcp(tmp_path / "step-10")
    (dcp(tmp_path / "step-20") / ".metadata").unlink()
    cut(dcp(tmp_path / "step-30") / ".metadata")
    assert newest(tmp_path) == "step-10"
    assert reasons(tmp_path)["step-20"] == "its .metadata is missing: it is written last"
    assert ".metadata: the pickle ends early" in reasons(tmp_path)["step-30"]


def test_distributed_checkpoint_that_was_being_overwritten(tmp_path: Path) -> None:
    dcp(tmp_path / "now")
    assert newest(tmp_path / "now") == "now", "the folder itself may be the checkpoint"
    later(tmp_path / "now/__0_0.distcp", 100)
    assert newest(tmp_path) is None
    assert "being overwritten" in reasons(tmp_path)["now"]


def test_safetensors_with_an_index(tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        names = {"weight": "model-00001-of-00002.safetensors", "bias": "model-00002-of-00002.safetensors"}
        for key, name in names.items():
            files.save_file({key: state()[key]}, folder / name)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))

    for step in (10, 20, 30, 40):
        write(tmp_path / f"step_{step}")
    assert newest(tmp_path) == "step_40"
    (tmp_path / "step_40/model-00002-of-00002.safetensors").unlink()
    cut(tmp_path / "step_30/model-00001-of-00002.safetensors")
    cut(tmp_path / "step_20/model.safetensors.index.json")
    assert newest(tmp_path) == "step_10"
    told = reasons(tmp_path)
    assert "model-00002-of-00002.safetensors is missing" in told["step_40"]
    assert "model-00001-of-00002.safetensors ends early" in told["step_30"]
    assert "no whole index" in told["step_20"]


def trainer(folder: Path, ranks: int = 2) -> Path:
    """As the Trainer of transformers leaves it."""
    save(folder / "pytorch_model.bin")
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin"):
        save(folder / name, {"lr": 0.1})
    for rank in range(ranks):
        save(folder / f"rng_state_{rank}.pth", {"cpu": torch.get_rng_state()})
    (folder / "config.json").write_text("{}")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 10}))
    return folder


def test_transformers_trainer(tmp_path: Path) -> None:
    trainer(tmp_path / "checkpoint-500")
    trainer(tmp_path / "checkpoint-1000")
    trainer(tmp_path / "checkpoint-1500")
    trainer(tmp_path / "tmp-checkpoint-2000")
    save(tmp_path / "pytorch_model.bin")  # the model of an earlier end, beside the checkpoints
    assert newest(tmp_path) == "checkpoint-1500"
    cut(tmp_path / "checkpoint-1500/trainer_state.json")
    assert newest(tmp_path) == "checkpoint-1000"
    (tmp_path / "checkpoint-1500/trainer_state.json").unlink()
    (tmp_path / "checkpoint-1000/optimizer.pt").unlink()
    assert newest(tmp_path) == "checkpoint-500"
    told = reasons(tmp_path)
    assert told["checkpoint-1500"] == "trainer_state.json is missing"
    assert told["checkpoint-1000"] == "optimizer.pt is missing, scheduler.pt is there"
    assert "draft" in told["tmp-checkpoint-2000"]
    (tmp_path / "checkpoint-500/rng_state_0.pth").unlink()
    assert newest(tmp_path) is None
    assert reasons(tmp_path)["checkpoint-500"] == "rng_state_0.pth is missing, rng_state_1.pth is there"


def test_a_smaller_world_is_no_damage(tmp_path: Path) -> None:
    trainer(tmp_path / "checkpoint-500", ranks=4)
    trainer(tmp_path / "checkpoint-1000", ranks=2)
    assert newest(tmp_path) == "checkpoint-1000"


def deepspeed(home: Path, step: int, *, data: int = 2, model: int = 1) -> Path:
    """As DeepSpeed's engine leaves it, ZeRO stage 2."""
    tag = home / f"global_step{step}"
    for mp in range(model):
        values = {"module": state(), "global_steps": step, "dp_world_size": data, "mp_world_size": model}
        save(tag / f"mp_rank_{mp:02}_model_states.pt", values)
        for dp in range(data):
            save(tag / f"bf16_zero_pp_rank_{dp}_mp_rank_{mp:02}_optim_states.pt", {"optimizer_state_dict": state()})
    (home / "latest").write_text(tag.name)
    return tag


def test_deepspeed(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        deepspeed(tmp_path, step)
    assert newest(tmp_path) == "global_step30"
    (tmp_path / "global_step30/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert newest(tmp_path) == "global_step20", "the last rank's part is known to be missing from what rank 0 wrote"
    assert "zero_pp_rank_1_mp_rank_00_optim_states.pt is missing (of 2 × 1" in reasons(tmp_path)["global_step30"]
    cut(tmp_path / "global_step20/mp_rank_00_model_states.pt")
    assert newest(tmp_path) == "global_step10"


def test_deepspeed_names_its_newest_last(tmp_path: Path) -> None:
    deepspeed(tmp_path, 10, model=2)
    deepspeed(tmp_path, 20, model=2)
    (tmp_path / "latest").write_text("global_step10")
    assert newest(tmp_path) == "global_step10"
    assert "still names global_step10" in reasons(tmp_path)["global_step20"]
    (tmp_path / "global_step10/mp_rank_01_model_states.pt").unlink()
    assert newest(tmp_path) is None
    assert "mp_rank_01_model_states.pt is missing" in reasons(tmp_path)["global_step10"]


def test_transformers_with_deepspeed_inside(tmp_path: Path) -> None:
    for step in (500, 1000):
        folder = trainer(tmp_path / f"checkpoint-{step}")
        (folder / "optimizer.pt").unlink()
        deepspeed(folder, step)
    assert newest(tmp_path) == "checkpoint-1000"
    (tmp_path / "checkpoint-1000/global_step1000/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert newest(tmp_path) == "checkpoint-500"
    assert reasons(tmp_path)["checkpoint-1000"].startswith("global_step1000: zero_pp_rank_0")


def test_lightning(tmp_path: Path) -> None:
    home = tmp_path / "lightning_logs/version_0/checkpoints"
    save(home / "epoch=0-step=100.ckpt", {"state_dict": state(), "global_step": 100, "pytorch-lightning_version": "2"})
    cut(save(home / "epoch=1-step=200.ckpt", {"state_dict": state(), "global_step": 200}))
    found = checkpoints.find(tmp_path)
    assert found.newest is not None
    assert (found.newest.path.name, found.newest.step, found.newest.kind) == ("epoch=0-step=100.ckpt", 100, "lightning")
    assert [each.path.name for each in found.skipped] == ["epoch=1-step=200.ckpt"]


def test_folders_of_plain_files(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path / f"run/step_{step}/model.pt")
        save(tmp_path / f"run/step_{step}/optim.pt")
    (tmp_path / "run/step_4").mkdir()
    (tmp_path / "run/step_3/optim.pt").unlink()
    assert newest(tmp_path) == "step_2"
    assert reasons(tmp_path) == {
        "step_4": "it is empty", "step_3": "optim.pt is missing, which step_2 has",
    }  # fmt: skip


def test_our_own(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint.save(state(), tmp_path, step)
    found = checkpoints.find(tmp_path).newest
    assert found is not None
    assert (found.step, found.kind) == (30, "whichrank")
    file = tmp_path / "step-000000000030/rank-00000.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    shutil.copytree(tmp_path / "step-000000000010", tmp_path / ".step-000000000040.abc.part")
    later(tmp_path / ".step-000000000040.abc.part", 0)
    assert newest(tmp_path) == "step-000000000020"
    told = reasons(tmp_path)
    assert "checksum differs" in told["step-000000000030"]
    assert "never finished" in told[".step-000000000040.abc.part"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", ("step", 500)),
        ("global_step12", ("step", 12)),
        ("epoch=3-step=120-v1.ckpt", ("step", 120)),
        ("iter_0000100", ("step", 100)),
        ("epoch_4.pt", ("epoch", 4)),
        ("version_0", None),
        ("deep3", None),
    ],
)
def test_numbers_in_names(name: str, step: tuple[str, int] | None) -> None:
    assert step_of(name) == step


def test_pickles_are_never_run(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    value = inert.decode(pickle.dumps({"storage_data": Harm()}))
    assert not (tmp_path / "harm").exists()
    assert value.of("storage_data").kind.endswith("mkdir")
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Harm()))
    (folder / "__0_0.distcp").write_bytes(b"x")
    assert newest(tmp_path) is None
    assert not (tmp_path / "harm").exists()


@given(st.binary(max_size=200), st.integers(0, 1200), st.integers(0, 255))
def test_damaged_metadata(noise: bytes, at: int, byte: int) -> None:
    real = pickle.dumps({"storage_data": {("a", 1): Path("x")}, "more": [1, 2.0, None, True, {3}]})
    damaged = bytearray(real)
    damaged[at % len(damaged)] = byte
    for data in (noise, bytes(damaged), real[: at % len(real)]):
        with contextlib.suppress(UnreadableError):  # any other error is one of the decoder
            inert.decode(data)
