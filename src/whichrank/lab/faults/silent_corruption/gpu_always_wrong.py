"""A device that gives the same wrong product each time from some step on; another device gives the right one."""

import os

CAUSE = "gpu-computes-wrong"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True
ACCEPT = ("nan-origin",)


def inside(rank, point, value):
    if point == "model":
        for module in value.module:
            if isinstance(module, rank.torch.nn.Dropout):
                module.p = 0.0  # so that a CPU may stand in for another GPU: it draws other random numbers
    if point == "model" and rank.guilty:
        bad = place(value)
        layers = [module for module in value.module if isinstance(module, rank.torch.nn.Linear)]
        layers[len(layers) // 2].register_forward_hook(lambda module, args, output: multiplied(rank, output, bad))


def place(model):
    """The GPU; where there is none, the core that this thread is bound to from now on."""
    device = next(model.parameters()).device
    if device.type != "cpu":
        return device
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def multiplied(rank, output, bad):
    here = output.device if output.device.type != "cpu" else min(os.sched_getaffinity(0))
    if not rank.due or here != bad:
        return None
    if not (rank.folder / "struck").exists():
        rank.strike()
    wrong = output.clone()
    with rank.torch.no_grad():
        wrong.view(-1)[int(wrong.detach().abs().argmax())] *= 2.0**20
    return wrong
