"""One test over many items: all of them are tried, and those that fail are listed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

MOST = 10


def over(
    items: Sequence[tuple[object, ...]], name: Callable[..., str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes one test of a check; the items are its arguments, `name` says how to call one in a failure."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        in_a_folder = "tmp_path" in inspect.signature(check).parameters

        def test(tmp_path: Path) -> None:
            failed = []
            for number, item in enumerate(items):
                more = {}
                if in_a_folder:
                    more["tmp_path"] = tmp_path / str(number)
                    more["tmp_path"].mkdir()
                try:
                    check(*item, **more)
                except AssertionError as error:
                    failed.append(f"{name(*item)}: {error}")
            assert items
            assert not failed, f"{len(failed)} of {len(items)} fail:\n" + "\n".join(failed[:MOST])

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
