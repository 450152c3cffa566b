"""torch.distributed as a rehearsed script sees it: its own functions, over our process group."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import wraps
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from whichrank.worker.rehearsal import children, client
from whichrank.worker.rehearsal.group import RehearsedGroup
from whichrank.worker.rehearsal.store import RehearsedStore, file, tcp

NAME = "rehearsal"
wanted: dict[str, str] = {}
"""The backend that the script asked for, by the name of the group."""


def install() -> None:
    """Called once, before anything that the script imports."""
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    replace("init_process_group", init_process_group)
    replace("new_group", new_group)
    replace("get_backend", get_backend)
    replace("is_nccl_available", lambda: True)
    replace("monitored_barrier", monitored_barrier)
    replace("TCPStore", tcp)
    replace("FileStore", file)
    c10d._store_based_barrier = lambda *_, **__: None
    c10d._get_object_coll_device = lambda *_: "cpu"
    c10d._get_pg_default_device = lambda *_: torch.device("cpu")


def replace(name: str, function: Any) -> None:
    """In the package and in the module where torch's own code looks it up."""
    for module in (dist, c10d):
        if hasattr(module, name):
            setattr(module, name, function)


def create(options: Any, _pg_options: Any) -> RehearsedGroup:
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 1800.0
    return RehearsedGroup(options.group_rank, members, options.group_id, wanted.get("next", "gloo"), seconds)


_init, _new_group, _get_backend = c10d.init_process_group, c10d.new_group, c10d.get_backend
_seconds = {"nccl": 600.0}


@wraps(_init)
def init_process_group(
    backend: Any = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None, **_: Any,
) -> None:  # fmt: skip
    """The same, over simulated ranks; refuses what torch would refuse."""
    if dist.is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    rank, world_size = place(init_method, rank, world_size)
    asked = str(backend or "nccl").lower()
    wanted["next"] = wanted["0"] = asked
    line = client.connect(rank)
    if children.Plan.launched and os.getpid() != client.rank_pid:
        client.note("spawn", processes=world_size)
        os._exit(0)
    line.tell({"t": "join", "rank": rank, "world": world_size})
    line.ask({"t": "init", "rank": rank, "world": world_size, "backend": asked, "at": client.stack()})
    patience = timeout or timedelta(seconds=_seconds.get(asked, 1800.0))
    ours = RehearsedStore("default")
    _init(NAME, store=ours, rank=rank, world_size=world_size, timeout=patience)
    client.note("joined")


def place(init_method: str | None, rank: int, world_size: int) -> tuple[int, int]:
    """Rank and world size as torch finds them: arguments, the URL, the environment."""
    query = parse_qs(urlsplit(init_method or "").query)
    if "rank" in query:
        rank = int(query["rank"][0])
    if "world_size" in query:
        world_size = int(query["world_size"][0])
    if rank < 0:
        rank = int(from_environment("RANK"))
    if world_size < 0:
        world_size = int(from_environment("WORLD_SIZE"))
    return rank, world_size


def from_environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        message = f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected"
        raise ValueError(f"{message}, but not set") from None


@wraps(_new_group)
def new_group(
    ranks: Any = None, timeout: Any = None, backend: Any = None, *rest: Any,
    use_local_synchronization: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """The same; the referee hears of it from every rank."""
    members = sorted(ranks) if ranks is not None else list(range(dist.get_world_size()))
    if not use_local_synchronization:
        header = {"t": "new_group", "members": members, "at": client.stack()}
        client.connect().tell(header)
    wanted["next"] = str(backend).lower() if backend else wanted.get("0", "gloo")
    for key in ("device_id", "pg_options", "backend_options"):
        options.pop(key, None)
    options = {key: value for key, value in options.items() if key in ("group_desc", "pg_tag", "sort_ranks")}
    made = _new_group(
        ranks, timeout, NAME, use_local_synchronization=use_local_synchronization, **options
    )  # fmt: skip
    if isinstance(made, RehearsedGroup):
        made.desc = options.get("group_desc") or "undefined"
    return made


@wraps(_get_backend)
def get_backend(group: Any = None) -> str:
    """What the script asked for."""
    _get_backend(group)
    pg = group if isinstance(group, RehearsedGroup) else c10d._get_default_group()
    backend: str = dist.Backend(pg.backend if pg.backend in dist.Backend.backend_list else "gloo")
    return backend


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier: the referee tells who is missing anyway."""
    (group or c10d._get_default_group()).monitored_barrier(timeout, wait_all_ranks)
