"""How many steps lie between two looks: rank 0 decides, and all others look at the same steps.

Ranks of one host share a folder. Those of other hosts hear it through the job's store, over a connection of their own:
nothing goes over the job's groups, and nobody waits.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

FILE, KEY = "guard.plan", "whichrank_guard/plan"
ASK_S = 2.0
"""Between two questions to the store."""


class Plan(NamedTuple):
    """Steps between two looks at gradients, and at slices."""

    gradients: int = 1
    slices: int = 1


class Channel:
    """Where rank 0 tells the plan and the others hear it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._store: Any = None
        self._next = 0.0

    def tell(self, plan: Plan) -> None:
        text, draft = json.dumps(plan), f"{self.folder}/{FILE}.{os.getpid()}"
        with open(draft, "w", encoding="ascii") as stream:  # noqa: PTH123
            stream.write(text)
        os.replace(draft, f"{self.folder}/{FILE}")  # noqa: PTH105
        if _several_hosts():
            with suppress(Exception):  # the others look at every step then
                store = _own_connection()
                if store is not None:
                    store.set(KEY, text)

    def hear(self) -> Plan | None:
        """The plan, where it has been told. Called by the guard's thread, now and then."""
        with suppress(OSError, ValueError), open(f"{self.folder}/{FILE}", encoding="ascii") as stream:  # noqa: PTH123
            return _plan(stream.read())
        now = time.monotonic()
        if now < self._next or not _several_hosts():
            return None
        self._next = now + ASK_S
        with suppress(Exception):
            self._store = self._store or _own_connection()
            if self._store is not None and self._store.check([KEY]):
                told, self._store = bytes(self._store.get(KEY)).decode("ascii"), None
                return _plan(told)
        return None


def _plan(text: str) -> Plan:
    gradients, slices = json.loads(text)
    return Plan(max(1, int(gradients)), max(1, int(slices)))


def _several_hosts() -> bool:
    """Whether some ranks may be on another host."""
    here, all_ = os.environ.get("LOCAL_WORLD_SIZE"), os.environ.get("WORLD_SIZE")
    return here is None or here != all_


def _own_connection() -> Any:
    """To the job's store; None where torch can't open a second one: the job's own may be busy waiting."""
    from torch.distributed import distributed_c10d as c10d

    clone = getattr(c10d._get_default_store(), "clone", None)  # noqa: SLF001 - the one store that all ranks share
    return clone() if clone is not None else None
