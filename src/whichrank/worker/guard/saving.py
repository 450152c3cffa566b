"""Checkpoints as they are written and read, samplers and schedules as they are made: noted, never changed."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from whichrank.worker.guard.session import Guard


def wrap(guard: Guard) -> None:
    _around(torch, "save", lambda args, kwargs: _saved(guard, args, kwargs), guard)
    _around(torch, "load", lambda args, kwargs: _loaded(guard, args, kwargs), guard)
    schedulers = torch.optim.lr_scheduler
    base = getattr(schedulers, "LRScheduler", None)
    if base is not None:
        _around(base, "__init__", lambda args, _: _scheduled(guard, args), guard)
    samplers = torch.utils.data.distributed.DistributedSampler
    _around(samplers, "__iter__", lambda args, _: _sampled(guard, args[0]), guard)


def wrap_late(guard: Guard) -> bool:
    """Torch's distributed checkpoints, once the job has imported them; whether that is done."""
    files = sys.modules.get("torch.distributed.checkpoint.filesystem")
    writer, reader = getattr(files, "_FileSystemWriter", None), getattr(files, "FileSystemReader", None)
    if writer is None or reader is None:
        return False
    _around(writer, "set_up_storage_writer", lambda args, _: _note_save(guard, _path(args[0].path)), guard)
    _around(reader, "set_up_storage_reader", lambda args, _: _note_load(guard, _path(args[0].path)), guard)
    return True


def _around(owner: Any, name: str, told: Any, guard: Guard) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        try:
            told(args, kwargs)
        except Exception as error:  # noqa: BLE001 - the call is the job's, and goes on
            guard.problem(error)
        return original(*args, **kwargs)

    setattr(owner, name, ours)


def _saved(guard: Guard, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    path = _path(args[1] if len(args) > 1 else kwargs.get("f")) or _meant()
    _note_save(guard, path, with_state=holds_state(args[0] if args else kwargs.get("obj")))


def holds_state(saved: Any, depth: int = 3) -> bool:
    """Whether the state of an optimizer that has stepped is in it: two words of `Optimizer.state_dict`."""
    if isinstance(saved, dict) and isinstance(saved.get("param_groups"), list) and isinstance(saved.get("state"), dict):
        return bool(saved["state"])
    inside = list(saved.values()) if isinstance(saved, dict) else saved if isinstance(saved, (list, tuple)) else []
    return depth > 0 and any(holds_state(value, depth - 1) for value in inside[:64])


def _note_save(guard: Guard, path: str, *, with_state: bool = False) -> None:
    if guard.notes is None or not path:
        return
    step = max((watched.count for watched in guard.watched.values()), default=0)
    guard.later({"t": "save", "s": step, "path": path, "ms": int(time.time() * 1000)})
    for watched in guard.watched.values():
        watched.everything("save", path=path, state=with_state)


def _loaded(guard: Guard, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _note_load(guard, _path(args[0] if args else kwargs.get("f")))


def _note_load(guard: Guard, path: str) -> None:
    if path:
        step = max((watched.count for watched in guard.watched.values()), default=0)
        guard.queue.append(({"t": "load", "s": step, "path": path}, {}, None))


def _path(target: Any) -> str:
    """A file's absolute name; empty for what is none."""
    name = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return ""
    return os.path.abspath(os.fspath(name))[:1000]  # noqa: PTH100


def _meant() -> str:
    """Where what is saved to memory goes next, as trainers do: the name that the caller has for it."""
    frame: Any = sys._getframe(4)  # noqa: SLF001
    for _ in range(2):
        for name in ("filepath", "checkpoint_path", "ckpt_path"):
            path = _path(frame.f_locals.get(name)) if frame is not None else ""
            if path:
                return path
        frame = frame.f_back if frame is not None else None
    return ""


def _scheduled(guard: Guard, args: tuple[Any, ...]) -> None:
    place = _place()
    kind = type(args[0]).__name__
    guard.queue.append(({"t": "scheduler", "kind": kind, "at": place}, {}, None))


def _sampled(guard: Guard, sampler: Any) -> None:
    said = {
        name: getattr(sampler, name, None) for name in ("num_replicas", "rank", "epoch", "seed", "shuffle", "drop_last")
    }
    size = len(sampler.dataset) if hasattr(sampler.dataset, "__len__") else None
    step = max((watched.count for watched in guard.watched.values()), default=0)
    guard.queue.append(({"t": "sampler", "s": step, "size": size, "at": _place(), **said}, {}, None))


def _place() -> str:
    """The innermost line outside of torch and of this package."""
    frame = sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if "/torch/" not in file and "/guard/" not in file and not file.startswith("<"):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
