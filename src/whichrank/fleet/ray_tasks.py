"""The same function on many parts, as tasks of a running Ray cluster. Needs `whichrank[ray]`, there as well as here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from whichrank.model.errors import UsageError

T = TypeVar("T")


def cores(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def connected(address: str) -> Any:
    """Ray's module, connected to the cluster."""
    from whichrank.fleet.engines import _ray_hub

    try:
        return _ray_hub.connect(address)
    except ImportError as error:
        raise UsageError("Ray is not installed here", "pip install 'whichrank[ray]'") from error
    except Exception as error:
        raise UsageError(f"no Ray cluster at {address}: {error}"[:500], "Does `ray status` see it?") from error


def spread(ray: Any, function: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, T | str]]:
    """(Number, result) as they come; of a part that failed, in words, why."""
    task = ray.remote(function).options(scheduling_strategy="SPREAD", max_retries=1)
    waiting = {task.remote(*part): number for number, part in enumerate(parts)}
    while waiting:
        done, _ = ray.wait(list(waiting), num_returns=1)
        for reference in done:
            number = waiting.pop(reference)
            try:
                yield number, ray.get(reference)
            except Exception as error:  # noqa: BLE001 - Ray's own errors are known only where it is installed
                yield number, (str(error).strip().splitlines() or ["no reason"])[-1][:300]
