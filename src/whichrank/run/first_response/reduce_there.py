"""Reduce a node's evidence on the node: by the job's own Python, where that has numpy and msgspec.

It travels with the collector: Python 3.8, standard library alone. The evidence and the package that reduces it lie in
memory (/dev/shm) while they are used, and are taken away. Where no Python can do it the evidence is sent as it is.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from whichrank.evidence.bundle import MemoryBundle
from whichrank.evidence.summary.head import NAME as SUMMARY
from whichrank.model.manifest import NAME as MANIFEST

PACKAGE = "whole.zip"
"""The package inside the archive that travels."""
LEAST_S = 2.0
_MEMORY = "/dev/shm"  # noqa: S108 - a private folder is made in it
_REDUCE = """
import sys
sys.path.insert(0, sys.argv[1])
import msgspec, numpy
from pathlib import Path
from whichrank.flows.reduce import reduce
Path(sys.argv[4]).write_bytes(reduce([Path(sys.argv[2])], node=sys.argv[3], jobs=1).data)
"""


def reduce_there(bundle: MemoryBundle, pythons: Iterable[str], package: bytes, name: str, deadline: float) -> str:
    """Put a summary in place of the files; why not, where it could not be done."""
    why = "no Python there has numpy and msgspec"
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(prefix="whichrank-", dir=place) as folder:
            source, out = Path(folder) / "evidence", Path(folder) / "out"
            _write(bundle, source)
            with zipfile.ZipFile(BytesIO(package)) as box:
                box.extractall(Path(folder) / "package")
            for python in pythons:
                left = deadline - time.monotonic()
                if left < LEAST_S:
                    return "the time was up"
                command = [python, "-c", _REDUCE, f"{folder}/package", str(source), name, str(out)]
                environment = {"PATH": os.environ.get("PATH", os.defpath), "OPENBLAS_NUM_THREADS": "1"}
                try:
                    done = subprocess.run(  # noqa: S603 - no shell; Pythons of this user or of root
                        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=left, env=environment,
                        check=False, cwd="/",
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    return "the time was up"
                except OSError:
                    continue
                if done.returncode == 0 and out.exists():
                    _replace(bundle, out.read_bytes())
                    return ""
                said = done.stderr.decode("utf-8", "replace").strip().splitlines()
                if said and "ModuleNotFoundError" not in said[-1]:
                    why = said[-1][:200]
    except OSError as error:
        return f"no room for it: {error.strerror or error}"
    return why


def _write(bundle: MemoryBundle, folder: Path) -> None:
    for name, (data, taken) in list(bundle.content.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(taken, taken))


def _replace(bundle: MemoryBundle, summary: bytes) -> None:
    kept = bundle.content.get(MANIFEST)
    bundle.content.clear()
    bundle.content[SUMMARY] = (summary, time.time_ns())
    if kept is not None:
        bundle.content[MANIFEST] = kept
