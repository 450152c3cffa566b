"""A device that gives a wrong product once in a thousand, and the right one when asked again."""

CAUSE = "gpu-computes-wrong"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True
ACCEPT = ("nan-origin",)


EVERY = 1000
products = [0]


def inside(rank, point, value):
    if point == "model" and rank.guilty:
        layers = [module for module in value.module if isinstance(module, rank.torch.nn.Linear)]
        # So that one of the thousand falls into the step of the plan, whatever was computed before.
        products[0] = EVERY - len(layers) * rank.plan.step - len(layers) // 2
        for layer in layers:
            layer.register_forward_hook(lambda module, args, output: multiplied(rank, output))


def multiplied(rank, output):
    products[0] += 1
    if products[0] % EVERY:
        return None
    rank.strike()
    wrong = output.clone()
    with rank.torch.no_grad():
        wrong.view(-1)[products[0] % wrong.numel()] += 3e6
    return wrong
