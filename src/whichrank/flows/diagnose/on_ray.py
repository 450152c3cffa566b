"""Evidence on storage that all nodes of a Ray cluster see: it is reduced there in parts, and judged here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from whichrank.fleet import ray_tasks
from whichrank.model.errors import UnreadableError

Progress = Callable[[str, int, int], None]
_PARTS_PER_CORE = 2
"""So that a core that is done early gets another part."""


@contextmanager
def reduced(paths: Sequence[Path], address: str, progress: Progress | None = None) -> Iterator[list[Path]]:
    """A folder of summaries in place of the files; it goes away at the end."""
    ray = ray_tasks.connected(address)
    where = [str(path.absolute()) for path in paths]
    count = ray_tasks.cores(ray) * _PARTS_PER_CORE
    try:
        with tempfile.TemporaryDirectory(prefix="whichrank-ray-") as folder:
            failed, files = [], 0
            parts = [(where, number, count) for number in range(count)]
            for done, (number, answer) in enumerate(ray_tasks.spread(ray, reduce_part, parts), start=1):
                if isinstance(answer, str):
                    failed.append(answer)
                elif answer[1]:
                    (Path(folder) / f"{number:04d}.whichrank").write_bytes(answer[0])
                    files += answer[1]
                if progress is not None:
                    progress("reducing on the cluster", done, count)
            if failed:
                raise UnreadableError(
                    f"{len(failed)} of {count} parts could not be reduced on the cluster: {failed[0]}",
                    "Every node must see the files under the same path, and have whichrank installed.",
                )
            if not files:
                raise UnreadableError(f"no file in {', '.join(where)} as the nodes of the cluster see it")
            yield [Path(folder)]
    finally:
        ray.shutdown()


def reduce_part(paths: Sequence[str], number: int, count: int) -> tuple[bytes, int]:
    """Runs on a node: the summary of this part of the files, and how many they are."""
    from whichrank.flows.reduce import reduce

    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is not there on this node")
    found = reduce([Path(path) for path in paths], jobs=1, part=(number, count))
    return found.data, found.files
