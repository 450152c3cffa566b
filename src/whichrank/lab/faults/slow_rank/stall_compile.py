"""One rank compiles the model anew, and its compiler waits for a worker that has gone."""

import concurrent.futures

CAUSE = "rank-stuck-in-compile"
CATEGORY = "hang"
WORKLOAD = "phases"


def launch(setup):
    setup.limit_s = 240.0  # work that takes long by its nature is borne for longer


def inside(rank, point, value):
    if point == "compile" and rank.guilty and rank.due:
        rank.strike()
        return rank.torch.compile(value, backend=backend)
    return None


def backend(graph, inputs):
    kernel = concurrent.futures.Future()
    return kernel.result()
