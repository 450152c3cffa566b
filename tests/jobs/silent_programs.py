"""Small training programs in many styles, healthy and with one silent fault each, judged by the guard's records alone.

    python -m tests.jobs.silent_programs [PROGRAM[:FAULT],…] [SEED]
    torchrun --nproc_per_node=4 silent_programs.py STEPS PROGRAM        # one of them, healthy

Torch is imported once; every run forks its ranks. One JSON text per run. `truths` says what must be found.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORLD, STEPS, WIDTH = 4, 30, 32


@dataclass(frozen=True)
class Truth:
    """What a fault must be called, and who is to be named: one rank, or a pair of candidates; () for everybody."""

    causes: tuple[str, ...]
    ranks: tuple[int, ...]
    first: int
    """The step at which it begins to be wrong."""


class Run:
    """One rank of one run: who it is, and when something goes wrong on which rank."""

    def __init__(self, rank: int, fault: str, bad: int, at: int, folder: Path) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.rank, self.fault, self.bad, self.at, self.folder = rank, fault, bad, at, folder

    def hit(self, step: int, *faults: str) -> bool:
        return self.rank == self.bad and step == self.at and (self.fault in faults if faults else self.fault != "none")

    def since(self, step: int, *faults: str) -> bool:
        return self.rank == self.bad and step >= self.at and self.fault in faults

    def data(self, step: int, size: int = 8, width: int = WIDTH, stream: int | None = None) -> Any:
        generator = self.torch.Generator().manual_seed(7919 * (self.rank if stream is None else stream) + step)
        return self.torch.randn(size, width, generator=generator)


def flip(tensor: Any, bit: int = 22, index: int = 5) -> None:
    """One bit of a float32 tensor, in place."""
    import torch

    with torch.no_grad():
        flat = getattr(tensor, "_local_tensor", tensor).detach().reshape(-1)
        bits = flat.view(torch.int32)
        bits[index % bits.numel()] ^= 1 << bit


def mlp(seed: int = 0, width: int = WIDTH, depth: int = 2) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers: list[Any] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.LayerNorm(width), nn.Linear(width, width))


# -- programs


def lora(run: Run) -> None:
    """Adapters beside frozen layers; the frozen weights are in no optimizer."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    class LoraLinear(nn.Module):
        def __init__(self, base: nn.Linear, r: int = 4) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
            self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + x @ self.lora_A.T @ self.lora_B.T

    torch.manual_seed(1)
    model = nn.Sequential(LoraLinear(nn.Linear(WIDTH, WIDTH)), nn.ReLU(), LoraLinear(nn.Linear(WIDTH, WIDTH)))
    wrapped = DistributedDataParallel(model)
    adam = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    for step in range(STEPS):
        loss = nn.functional.mse_loss(wrapped(run.data(step)), run.data(step + 1000))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        if run.hit(step, "frozen_bit"):
            flip(model[2].base.weight)
        if run.hit(step, "adapter_bit"):
            flip(model[0].lora_B)
        adam.step()
        schedule.step()


def ema(run: Run) -> None:
    """Every rank keeps an average of the weights, and evaluates it now and then."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = mlp(2)
    wrapped = DistributedDataParallel(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        wrapped(run.data(step)).square().mean().backward()
        if run.hit(step, "moment_bit"):
            flip(adam.state[model[0].weight]["exp_avg_sq"], 23)
        adam.step()
        average.update_parameters(model)
        if step % 10 == 9:
            with torch.no_grad():
                score = average(run.data(5)).square().mean()
            run.dist.all_reduce(score)


def moe(run: Run) -> None:
    """A router that all share, an expert per rank, tokens sent by all_to_all."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    router, stem = nn.Linear(WIDTH, WORLD), nn.Linear(WIDTH, WIDTH)
    torch.manual_seed(50 + run.rank)
    expert = nn.Linear(WIDTH, WIDTH)
    shared = [*router.parameters(), *stem.parameters()]
    adam = torch.optim.AdamW([{"params": shared}, {"params": expert.parameters(), "lr": 2e-3}], lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        hidden = stem(run.data(step))
        gates = router(hidden).softmax(-1)
        sent = hidden.detach()
        received = torch.empty_like(sent)
        run.dist.all_to_all_single(received, sent)
        answer = expert(received)
        back = torch.empty_like(sent)
        run.dist.all_to_all_single(back, answer.detach())
        loss = answer.square().mean() + (gates * gates.log()).sum(-1).mean() * 0.1 + (hidden - back).square().mean()
        if run.hit(step, "nan"):
            loss = loss * float("nan")
        loss.backward()
        for parameter in shared:
            run.dist.all_reduce(parameter.grad)
            parameter.grad.div_(WORLD)
        if run.hit(step, "late_grad"):
            router.weight.grad += 0.01 * router.weight
        adam.step()


def hsdp(run: Run) -> None:
    """Blocks wrapped one by one on a mesh of two copies by two shards, with a norm that is clipped."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = nn.Sequential(mlp(4), mlp(5))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        model(run.data(step)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        if run.hit(step, "shard_bit"):
            flip(next(model.parameters()))


def fsdp2(run: Run) -> None:
    """Sharded over all, micro-batches without a reduction in between."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = mlp(6)
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3 if not run.since(10**6, "rate") else 1e-3)
    for step in range(STEPS):
        for micro in range(2):
            model.set_requires_gradient_sync(micro == 1)
            inputs = run.data(10 * step + micro)
            if micro == 1 and run.hit(step, "nan_input"):
                inputs[3, 4] = float("nan")
            (model(inputs).float().square().mean() / 2).backward()
        adam.step()
        adam.zero_grad()


def tensor_parallel(run: Run) -> None:
    """Megatron's MLP through torch's own styles: all ranks see the same batch, the norms are whole on each."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.relu(self.up(self.norm(x))))

    torch.manual_seed(7)
    model = nn.Sequential(Block(), Block())
    mesh = init_device_mesh("cpu", (WORLD,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        model(run.data(step, stream=0)).square().mean().backward()
        adam.step()
        if run.hit(step, "norm_bit"):
            flip(model[1].norm.weight, 20)


def pipeline(run: Run) -> None:
    """Two stages, two copies of each; activations and gradients are sent by hand."""
    import torch

    stage, copy = run.rank % 2, run.rank // 2
    groups = [run.dist.new_group([0, 2]), run.dist.new_group([1, 3])]
    model = mlp(8 + stage)
    rate = 1e-3 * (2 if run.since(10**6, "stage_rate") else 1)
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(STEPS):
        adam.zero_grad()
        if stage == 0:
            hidden = model(run.data(step, stream=copy))
            run.dist.send(hidden.detach(), run.rank + 1)
            gradient = torch.empty_like(hidden)
            run.dist.recv(gradient, run.rank + 1)
            hidden.backward(gradient)
        else:
            inputs = torch.empty(8, WIDTH)
            run.dist.recv(inputs, run.rank - 1)
            inputs.requires_grad_()
            model(inputs).square().mean().backward()
            run.dist.send(inputs.grad, run.rank - 1)
        for parameter in model.parameters():
            run.dist.all_reduce(parameter.grad, group=groups[stage])
            parameter.grad /= 2
        adam.step()
        if run.hit(step, "stage_bit"):
            flip(model[0].weight)


def flat_by_hand(run: Run) -> None:
    """One flat gradient, reduced by one call; SGD of torch."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    model = mlp(9)
    vector = parameters_to_vector(model.parameters())
    run.dist.broadcast(vector, 0)
    if not run.since(10**6, "no_broadcast"):
        vector_to_parameters(vector, model.parameters())
    else:
        vector_to_parameters(vector + 1e-3, model.parameters())
    sgd = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for step in range(STEPS):
        sgd.zero_grad()
        model(run.data(step)).square().mean().backward()
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        work = run.dist.all_reduce(flat, async_op=True)
        work.wait()
        if not run.since(step, "not_divided"):
            flat /= WORLD
        at = 0
        for parameter in model.parameters():
            parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()
        sgd.step()


def no_optimizer(run: Run) -> None:
    """The update is a line of the script: torch's optimizers are not used at all."""
    import torch

    model = mlp(10)
    for step in range(STEPS):
        model.zero_grad()
        model(run.data(step)).square().mean().backward()
        for parameter in model.parameters():
            run.dist.all_reduce(parameter.grad)
            with torch.no_grad():
                parameter.sub_(1e-2 * parameter.grad / WORLD)
        if run.hit(step, "bit"):
            flip(model[0].weight)


def compiled(run: Run) -> None:
    """A compiled model in DDP; one rank's product is wrong once."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = mlp(11)
    wrapped = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        out = wrapped(run.data(step))
        loss = out.square().mean()
        if run.hit(step, "wrong_gradient"):
            loss = loss + 0 * out.sum() + (out[0, 0] * 4096.0).square() / 64
        loss.backward()
        adam.step()
        if run.hit(step, "bit"):
            flip(model[2].weight)


def sampler(run: Run) -> None:
    """A loader with a distributed sampler."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    torch.manual_seed(12)
    data = TensorDataset(torch.randn(240, WIDTH), torch.randint(0, WIDTH, (240,)))
    mine = (run.rank + 1) % WORLD if run.since(10**6, "same_shard") else run.rank
    which: Any = DistributedSampler(data, WORLD, mine, shuffle=True, seed=3)
    if run.fault == "not_sharded":
        which = torch.utils.data.RandomSampler(data, generator=torch.Generator().manual_seed(3))
    wrapped = DistributedDataParallel(mlp(12))
    sgd = torch.optim.SGD(wrapped.parameters(), lr=1e-2)
    for epoch in range(max(4, STEPS // 8)):
        if run.fault != "not_sharded":
            which.set_epoch(epoch if not run.since(10**6, "epoch_not_set") else 0)
        for inputs, labels in DataLoader(data, batch_size=8, sampler=which):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(wrapped(inputs), labels).backward()
            sgd.step()


def resumed(run: Run) -> None:
    """Saved by rank 0 twice, loaded by all."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    def fresh() -> tuple[Any, Any]:
        model = DistributedDataParallel(mlp(13))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(model: Any, adam: Any, first: int, last: int) -> None:
        for step in range(first, last):
            adam.zero_grad()
            model(run.data(step)).square().mean().backward()
            adam.step()
            if step % 8 == 7 and run.rank == 0:
                torch.save([model.state_dict(), adam.state_dict()], run.folder / f"{step}.pt")
        run.dist.barrier()

    train(*fresh(), 0, 16)
    model, adam = fresh()
    states = torch.load(run.folder / "15.pt")
    if run.since(10**6, "old_file"):
        states = torch.load(run.folder / "7.pt")
    model.load_state_dict(states[0])
    if not run.since(10**6, "no_state"):
        adam.load_state_dict(states[1])
    train(model, adam, 16, STEPS + 8)


def zero(run: Run) -> None:
    """ZeroRedundancyOptimizer: the state is sharded, the parameters are not."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(mlp(14))
    adam = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        wrapped(run.data(step)).square().mean().backward()
        adam.step()
        if run.since(step, "bit"):  # a bad cell: what the owner sends is wrong here again
            flip(list(wrapped.parameters())[1], 21, 7)


def adversarial(run: Run) -> None:
    """Two models in turn, the second stepped twice as often."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    maker, critic = DistributedDataParallel(mlp(15)), DistributedDataParallel(mlp(16))
    first = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.5, 0.9))
    second = torch.optim.Adam(
        critic.parameters(), lr=4e-4, betas=(0.5, 0.99 if run.since(10**6, "betas") else 0.9)
    )  # fmt: skip
    for step in range(STEPS):
        for k in range(2):
            second.zero_grad()
            fake = maker(run.data(3 * step + k)).detach()
            (critic(fake).mean() - critic(run.data(9000 + 3 * step + k)).mean()).backward()
            second.step()
        first.zero_grad()
        (-critic(maker(run.data(3 * step + 2))).mean()).backward()
        first.step()


def metrics(run: Run) -> None:
    """Training by DDP, with the odd collective for logging."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    dist = run.dist
    wrapped = DistributedDataParallel(mlp(17))
    sgd = torch.optim.SGD(wrapped.parameters(), lr=1e-2)
    for step in range(STEPS):
        sgd.zero_grad()
        loss = wrapped(run.data(step)).square().mean()
        loss.backward()
        sgd.step()
        seen = loss.detach().clone().reshape(1)
        dist.all_reduce(seen, op=dist.ReduceOp.MAX if run.hit(step, "other_op") else dist.ReduceOp.SUM)
        count = torch.ones(4, dtype=torch.int32 if run.hit(step, "other_dtype") else torch.float32)
        dist.all_reduce(count)
        order = torch.arange(6.0)
        dist.broadcast(order, src=0)


def reference(run: Run) -> None:
    """A policy in DDP and a frozen reference model; answers of different lengths per rank."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    policy, frozen = DistributedDataParallel(mlp(18)), mlp(18).requires_grad_(False)
    adam = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    for step in range(STEPS):
        with torch.no_grad():
            state = run.data(step)
            for _ in range(1 + (run.rank + step) % 3):
                state = torch.tanh(policy.module(state))
        for epoch in range(2):
            adam.zero_grad()
            loss = (policy(state) - frozen(state)).square().mean() + policy(state).abs().mean() * 0.1
            if epoch == 1 and run.hit(step, "inf"):
                loss = loss / (loss - loss)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            adam.step()


def fsdp1(run: Run) -> None:
    """The older FSDP, every rank with the whole."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    model = FullyShardedDataParallel(
        mlp(19), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu")
    )
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        adam.zero_grad()
        model(run.data(step)).square().mean().backward()
        adam.step()
        if run.hit(step, "bit"):
            flip(next(model.parameters()), 22, 40)


PROGRAMS: dict[str, Callable[[Run], None]] = {
    each.__name__: each
    for each in (lora, ema, moe, hsdp, fsdp2, tensor_parallel, pipeline, flat_by_hand, no_optimizer, compiled, sampler,
                 resumed, zero, adversarial, metrics, reference, fsdp1)
}  # fmt: skip
DIVERGED = ("replica-divergence",)


def truths(bad: int, at: int) -> dict[tuple[str, str], Truth]:
    """By program and fault. A pair where two hold the same and nothing says which of them is right."""
    pair = tuple(sorted({bad, (bad + 2) % WORLD}))
    return {
        ("lora", "frozen_bit"): Truth(DIVERGED, (bad,), at),
        ("lora", "adapter_bit"): Truth(DIVERGED, (bad,), at),
        ("ema", "moment_bit"): Truth(DIVERGED, (bad,), at),
        ("moe", "late_grad"): Truth(DIVERGED, (bad,), at),
        ("moe", "nan"): Truth(("nan-origin",), (bad,), at),
        ("hsdp", "shard_bit"): Truth(DIVERGED, pair, at),
        ("fsdp2", "nan_input"): Truth(("nan-origin",), (bad,), at),
        ("fsdp2", "rate"): Truth(DIVERGED, (bad,), 0),
        ("tensor_parallel", "norm_bit"): Truth(DIVERGED, (bad,), at),
        ("pipeline", "stage_bit"): Truth(DIVERGED, pair, at),
        ("pipeline", "stage_rate"): Truth(DIVERGED, (bad,), 0),
        ("flat_by_hand", "not_divided"): Truth(DIVERGED, (bad,), at),
        ("flat_by_hand", "no_broadcast"): Truth(DIVERGED, (bad,), -1),
        ("no_optimizer", "bit"): Truth(DIVERGED, (bad,), at),
        ("compiled", "bit"): Truth(DIVERGED, (bad,), at),
        ("compiled", "wrong_gradient"): Truth(("gpu-computes-wrong", "gradient-outlier"), (bad,), at),
        ("sampler", "same_shard"): Truth(("data-order",), (bad,), 0),
        ("sampler", "not_sharded"): Truth(("data-order",), (), 0),
        ("sampler", "epoch_not_set"): Truth(("data-order",), (bad,), 8),
        ("resumed", "old_file"): Truth(DIVERGED, (bad,), -1),
        ("resumed", "no_state"): Truth(DIVERGED, (bad,), -1),
        ("zero", "bit"): Truth(DIVERGED, (bad,), at),
        ("adversarial", "betas"): Truth(DIVERGED, (bad,), 0),
        ("metrics", "other_op"): Truth(("reduce-op-mismatch",), (bad,), at),
        ("metrics", "other_dtype"): Truth(("dtype-mismatch",), (bad,), at),
        ("reference", "inf"): Truth(("nan-origin",), (bad,), 2 * at + 1),
        ("fsdp1", "bit"): Truth(DIVERGED, (bad,), at),
    }


# -- running them


def rank_main(program: str, run: tuple[int, str, int, int, Path], port: int) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(run[0]), LOCAL_RANK=str(run[0]), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))  # fmt: skip
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[program](Run(*run))
    dist.barrier()
    dist.destroy_process_group()


def run_one(guard: Any, program: str, fault: str, bad: int, at: int) -> dict[str, Any]:
    from whichrank.flows.diagnose.pipeline import diagnose
    from whichrank.lab.workloads.forking import fork_ranks
    from whichrank.report.json import as_document

    where = Path(tempfile.mkdtemp(prefix="whichrank-silent-"))
    records, scratch = where / "records", where / "files"
    records.mkdir()
    scratch.mkdir()
    guard.folder = str(records)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began = time.monotonic()
    code = fork_ranks(list(range(WORLD)), lambda rank: rank_main(program, (rank, fault, bad, at, scratch), port))
    took = time.monotonic() - began
    verdict = json.loads(json.dumps(as_document(diagnose([records], jobs=1)), default=int))["verdict"]
    window = max((json.loads(line).get("k", 0) for path in records.glob("*.guard")
                  for line in path.read_text().splitlines() if '"k":' in line), default=0)  # fmt: skip
    off = {json.loads(line)["why"] for path in records.glob("*.guard") for line in path.read_text().splitlines()
           if '"t":"off"' in line}  # fmt: skip
    link = (verdict["certificate"] or [{}])[0]
    found = {"program": program, "fault": fault, "cause": verdict["cause"], "ranks": verdict["culprits"]["ranks"],
             "candidates": verdict["culprits"]["candidates"], "step": link.get("step"), "window": window, "bad": bad,
             "at": at, "exit_code": code, "seconds": round(took, 1), "summary": verdict["summary"],
             "off": sorted(off)}  # fmt: skip
    found["right"] = judged(found, truths(bad, at).get((program, fault)))
    if os.environ.get("SILENT_KEEP"):
        found["kept"] = str(where)
    else:
        shutil.rmtree(where, ignore_errors=True)
    return found


def judged(found: dict[str, Any], truth: Truth | None) -> bool:
    if found["exit_code"]:
        return False
    if truth is None:
        return found["cause"] in ("unknown", "healthy", "", None) and not found["ranks"] and not found["candidates"]
    named = sorted({*found["ranks"], *found["candidates"]})
    late = (found["step"] if isinstance(found["step"], int) else -1) - truth.first
    who = not truth.ranks or named == sorted(truth.ranks)
    return found["cause"] in truth.causes and who and -1 <= late <= max(found["window"], 1) + 1


def healthy_rank() -> int:
    """One rank of a healthy job that something else has started."""
    import torch
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    global STEPS  # noqa: PLW0603
    STEPS = int(sys.argv[1])
    if pace_s := float(os.environ.get("HEALTHY_PACE_S", "0")):
        register_optimizer_step_post_hook(lambda *_: time.sleep(pace_s))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        dist.broadcast_object_list(shared, 0)
        PROGRAMS[sys.argv[2]](Run(dist.get_rank(), "none", -1, -1, Path(shared[0])))
        dist.barrier()
    dist.destroy_process_group()
    return 0


def main() -> int:
    if "RANK" in os.environ:
        return healthy_rank()
    wanted = sys.argv[1].split(",") if len(sys.argv) > 1 and sys.argv[1] != "all" else []
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.environ.update(OMP_NUM_THREADS="1", WHICHRANK_GUARD_EVERY="1")
    import random

    import torch
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.tensor.parallel  # before the ranks are forked, so that none has to

    from whichrank.worker.guard import arrival

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # ranks look at what is new alone, and share the pages of the rest
    draw, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        guard = arrival.begin(folder, "parent", "on")
        for program, fault in [*((name, "none") for name in PROGRAMS), *truths(0, 0)]:
            bad, at = draw.randrange(WORLD), draw.randrange(12, 20)
            if wanted and program not in wanted and f"{program}:{fault}" not in wanted:
                continue
            with redirect_stdout(sys.stderr):
                outcome = run_one(guard, program, fault, bad, at)
            wrong += not outcome["right"]
            print(json.dumps(outcome), flush=True)  # noqa: T201
    return wrong


if __name__ == "__main__":
    sys.exit(main())
