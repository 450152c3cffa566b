"""A high bit of one activation flips on one rank, and everything behind it is wrong."""

CAUSE = "gpu-computes-wrong"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True
ACCEPT = ("nan-origin",)


def inside(rank, point, value):
    if point == "model":
        # What dropout lets through: a value that it sets to zero next would have been wrong for nobody.
        layers = [module for module in value.module if isinstance(module, rank.torch.nn.Dropout)]
        rank.plan.dice().choice(layers).register_forward_hook(lambda module, args, output: struck(rank, output))


def struck(rank, output):
    if not rank.guilty or not rank.due or (rank.folder / "struck").exists():
        return None
    rank.strike()
    wrong = output.clone()
    with rank.torch.no_grad():
        wrong.view(-1)[int(wrong.detach().abs().argmax())] *= 2.0**40
    return wrong
