"""Arguments that are addresses (s3://…, gs://…): fetched into a folder that is there as long as the command runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from whichrank.cli.terminal.progress import ProgressLine


@contextmanager
def fetched(paths: Sequence[str], progress: ProgressLine) -> Iterator[tuple[str, ...]]:
    """The same arguments, with what was fetched in place of addresses."""
    if not any("://" in text for text in paths):
        yield tuple(paths)
        return
    from tempfile import TemporaryDirectory

    from whichrank.evidence import remote

    with TemporaryDirectory(prefix="whichrank-remote-") as folder:
        found = []
        for number, text in enumerate(paths):
            place = text
            if remote.is_url(text):
                place = str(remote.fetch(text, Path(folder) / str(number), progress))
            found.append(place)
        yield tuple(found)
