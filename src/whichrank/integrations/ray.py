"""Ray Train: `TorchTrainer(watched(train_loop), run_config=RunConfig(callbacks=[Verdict()]))`.

`watched` marks checkpoints and adds the verdict to a worker's error; `marking.follow(model)` and `marking.step()` in
the loop mark the rest. `Verdict` adds it to the errors that the controller sees. The processes of a cluster that runs
already don't inherit the environment of `whichrank run`: give them `runtime_env()`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from whichrank.integrations import marking
from whichrank.integrations.verdict_note import attach
from whichrank.worker.startup import FOLDER
from whichrank.worker.surroundings import WATCHER


def watched(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The function that each worker runs, with its phases marked and the verdict in its error."""

    @functools.wraps(loop)
    def inside(*given: Any, **named: Any) -> Any:
        train: Any = import_module("ray.train")
        report = train.report
        train.report = _reported(report)
        try:
            marking.enter(marking.DATA)
            with marking.errors():
                return loop(*given, **named)
        finally:
            train.report = report

    return inside


def _reported(report: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's `report`: all workers meet there, and a checkpoint is uploaded where one is given."""

    @functools.wraps(report)
    def inside(*given: Any, **named: Any) -> Any:
        with marking.phase(marking.CHECKPOINT if named.get("checkpoint") else marking.DATA):
            return report(*given, **named)

    return inside


def runtime_env() -> dict[str, Any]:
    """For `ray.init(runtime_env=…)`: workers of a cluster on this host are watched as the job's own are."""
    names = (FOLDER, WATCHER, "PYTHONPATH", "WHICHRANK_GUARD")
    return {"env_vars": {name: os.environ[name] for name in names if name in os.environ}}


def _base() -> Any:
    try:
        return import_module("ray.train").UserCallback
    except (ImportError, AttributeError):  # Ray without its new trainer
        return object


class Verdict(_base()):  # type: ignore[misc]
    """For `RunConfig(callbacks=[…])`: the errors that end the run carry the verdict."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:  # noqa: ARG002
        for error in worker_exceptions.values():
            attach(error)
