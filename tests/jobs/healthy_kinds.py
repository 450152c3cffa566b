"""Healthy training of many kinds in one job of four ranks; prints a digest of every final model.

    torchrun --nproc_per_node=4 healthy_kinds.py [STEPS] [KIND,KIND…]

None of them is wrong, though replicas, batches and gradients of ranks differ in many of them, each in its own right.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WIDTH = 48
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


def net(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), *extra, nn.Linear(WIDTH, WIDTH))


def batch(step: int, size: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + step)
    return torch.randn(size, WIDTH, generator=generator)


def loop(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).pow(2).mean().backward()
        optimizer.step()


def ddp() -> nn.Module:
    model = DDP(net())
    loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    return model


def bucket_views() -> nn.Module:
    model = DDP(net(), gradient_as_bucket_view=True)
    loop(model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9))
    return model


def batch_norm() -> nn.Module:
    model = DDP(net(nn.BatchNorm1d(WIDTH)))
    loop(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    return model


def dropout() -> nn.Module:
    torch.manual_seed(100 + dist.get_rank())  # masks differ on purpose
    model = DDP(net(nn.Dropout(0.3)))
    torch.manual_seed(100 + dist.get_rank())
    loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    return model


def accumulation() -> nn.Module:
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(3):
            if micro < 2:
                with model.no_sync():
                    model(batch(10 * step + micro)).pow(2).mean().backward()
            else:
                model(batch(10 * step + micro)).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def amp() -> nn.Module:
    """Bfloat16 in the forward pass, and a gradient scaler that skips steps."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=5)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch(step)).float().pow(2).mean()
        if step % 9 == 4 and dist.get_rank() == 1:
            loss = loss * float("inf")  # an overflow, which the scaler notices everywhere
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


def ema() -> nn.Module:
    model = DDP(net())
    average = copy.deepcopy(model.module) if dist.get_rank() == 0 else None  # one rank keeps it
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step)).pow(2).mean().backward()
        optimizer.step()
        if average is not None:
            with torch.no_grad():
                for mean, parameter in zip(average.parameters(), model.module.parameters(), strict=True):
                    mean.lerp_(parameter, 0.1)
    return model


def moe() -> nn.Module:
    """Every rank has an expert of its own; the rest is reduced by hand."""
    shared, expert = net(), nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        expert.weight.mul_(1 + dist.get_rank())
        expert.bias.zero_()
    optimizer = torch.optim.SGD([*shared.parameters(), *expert.parameters()], lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        hidden = shared(batch(step))
        pieces = list(hidden.detach().chunk(dist.get_world_size()))
        received = [torch.empty_like(piece) for piece in pieces]
        for source in range(dist.get_world_size()):
            gathered = [torch.empty_like(pieces[0]) for _ in pieces] if dist.get_rank() == source else None
            dist.gather(pieces[source], gathered, dst=source)
            received = gathered or received
        (hidden.pow(2).mean() + expert(torch.cat(received)).pow(2).mean()).backward()
        for parameter in shared.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
    return shared


def lora() -> nn.Module:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = net().requires_grad_(False)
            torch.manual_seed(5)
            self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.frozen(inputs) + self.up(self.down(inputs))

    model = DDP(Adapter())
    loop(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2))
    return model


def uneven_last_batch() -> nn.Module:
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(101, WIDTH, generator=torch.Generator().manual_seed(1)))
    sampler: DistributedSampler = DistributedSampler(data)
    for epoch in range(max(1, STEPS // 4)):
        sampler.set_epoch(epoch)
        for (inputs,) in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
    return model


def resumed() -> nn.Module:
    path = f"{tempfile.gettempdir()}/whichrank-resumed-{os.environ['MASTER_PORT']}-{dist.get_rank()}.pt"
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loop(model, optimizer, STEPS // 2)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saved = torch.load(path)
    os.unlink(path)  # noqa: PTH108
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loop(model, optimizer, STEPS // 2)
    return model


def fsdp2() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    return model


def hsdp() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "shard")))
    loop(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    return model


def tensor_parallel() -> nn.Module:
    """By hand: columns and rows of one product on two ranks, times two data-parallel copies."""
    tp, dp, row, column = _grid()
    torch.manual_seed(17 + row)
    up, down = nn.Linear(WIDTH, WIDTH // 2), nn.Linear(WIDTH // 2, WIDTH, bias=False)
    nn.init.zeros_(up.bias)  # equal at first, as in many a model, and different soon
    model = nn.Sequential(up, nn.ReLU(), down)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * column + step)
        inputs = torch.randn(8, WIDTH, generator=generator)  # the same for both halves
        optimizer.zero_grad()
        partial = model(inputs)
        whole = partial.detach().clone()
        dist.all_reduce(whole, group=tp)
        partial.backward(2 * whole / whole.numel())
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=dp)
        optimizer.step()
    return model


def _grid() -> tuple[dist.ProcessGroup, dist.ProcessGroup, int, int]:
    rank = dist.get_rank()
    tps = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dps = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return tps[rank // 2], dps[rank % 2], rank % 2, rank // 2


def local_steps() -> nn.Module:
    """Parameters are averaged now and then only: replicas differ in between, after a beginning in step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step)).pow(2).mean().backward()
        if step < STEPS // 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        if step % 4 == 3:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()
    return model


def two_optimizers() -> nn.Module:
    one, two = DDP(net()), DDP(net())
    optimizers = [torch.optim.Adam(one.parameters(), lr=1e-3), torch.optim.Adam(two.parameters(), lr=2e-3)]
    for step in range(STEPS):
        for model, optimizer in zip((one, two), optimizers, strict=True):
            optimizer.zero_grad()
            model(batch(step)).pow(2).mean().backward()
            optimizer.step()
    return nn.ModuleList([one, two])


def heavy_tail() -> nn.Module:
    """Batches whose size of numbers differs a hundredfold between ranks and steps."""
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        scale = 10.0 ** (
            2 * torch.rand(1, generator=torch.Generator().manual_seed(77 * step + dist.get_rank())).item() - 1
        )
        optimizer.zero_grad()
        model(scale * batch(step)).pow(2).mean().backward()
        optimizer.step()
    return model


KINDS = (ddp, fsdp2, hsdp, accumulation, amp, dropout, ema, moe, lora, uneven_last_batch, resumed, bucket_views,
         batch_norm, tensor_parallel, local_steps, two_optimizers, heavy_tail)  # fmt: skip


def digest(model: nn.Module) -> str:
    import hashlib

    found = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        found.update(getattr(tensor, "_local_tensor", tensor).detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if pace_s := float(os.environ.get("HEALTHY_PACE_S", "0")):
        register_optimizer_step_post_hook(lambda *_: time.sleep(pace_s))
    wanted = sys.argv[2].split(",") if len(sys.argv) > 2 else [kind.__name__ for kind in KINDS]
    kept = []
    for kind in KINDS:
        if kind.__name__ in wanted:
            model = kind()
            kept.append(model)  # so that ids are not used twice
            line = f"{kind.__name__} {dist.get_rank()} {digest(model)} {torch.rand(1).item():.9f}\n"
            os.write(1, line.encode())  # in one piece: ranks share the stream
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
