"""Tell one tracker the news that come on stdin; the last line of stdout is the answer, as JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from types import ModuleType

from whichrank.integrations.trackers import Told


def main(name: str) -> int:
    told = Told(**json.load(sys.stdin))
    # Trackers print much; their words are not the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        module: ModuleType = import_module(f"whichrank.integrations.trackers.to_{name}")
        heard = {"run": module.tell(told)}
    except Exception as error:  # noqa: BLE001 - whatever it is, the watcher tells it
        heard = {"failure": f"{type(error).__name__}: {error}".splitlines()[0]}
    answer.write(json.dumps(heard) + "\n")
    answer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
