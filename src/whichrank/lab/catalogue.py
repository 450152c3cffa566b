"""The faults there are: files of `lab/faults`, or one from outside the package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from whichrank.facts.taxonomy import causes
from whichrank.lab.control_groups import can_limit_memory
from whichrank.lab.truth import Truth
from whichrank.lab.workloads.plan import Plan
from whichrank.model.errors import UsageError

Ending = Literal["hang", "crash", "running"]
HERE = Path(__file__).parent
HOOKS = ("inside", "outside", "launch", "evidence")
BOTH = ("gloo", "nccl")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault's file and what it says of itself."""

    name: str
    path: Path
    module: ModuleType
    summary: str
    cause: str
    category: str
    workload: str
    accept: tuple[str, ...]
    needs: tuple[str, ...]
    least_world: int
    ending: Ending
    backends: tuple[str, ...]
    guard: bool = False
    """Whether the job runs with --guard."""

    @property
    def injected(self) -> bool:
        """Whether recorded evidence stands for hardware that nobody can break here."""
        return hasattr(self.module, "evidence")

    def hook(self, name: str) -> Callable[..., Any] | None:
        """One of its functions, if it has it."""
        return getattr(self.module, name, None)

    def truth(self, plan: Plan) -> Truth:
        culprits = self.hook("culprits")
        ranks = culprits(plan) if culprits else [plan.rank]
        return Truth(self.category, self.cause, None if ranks is None else tuple(ranks), self.accept, self.summary)

    def lacking(self) -> list[str]:
        """What it needs and this machine or user has not."""
        return [need for need in self.needs if not NEEDS[need]()]

    def as_json(self) -> dict[str, Any]:
        return {
            "fault": self.name,
            "cause": self.cause,
            "needs": list(self.needs),
            "summary": self.summary,
            "workload": self.workload,
            "injected": self.injected,
        }


@cache
def _files() -> dict[str, Path]:
    """The faults of the package, by their files: faults/<family>/<name>.py, or ROWS of <what_they_share>_rows.py."""
    found: dict[str, Path] = {}
    for file in sorted((HERE / "faults").glob("*/[!_]*.py")):
        names = _load(file).ROWS if file.stem.endswith("_rows") else (file.stem,)
        found |= dict.fromkeys(names, file)
    return found


def names() -> list[str]:
    return sorted(_files())


def find(name: str) -> Fault:
    if name not in names():
        from difflib import get_close_matches

        near = get_close_matches(name, names(), n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "whichrank drill list shows them."
        raise UsageError(f"there is no fault '{name}'", hint)
    return from_file(_files()[name], name)


def from_file(path: Path, name: str = "") -> Fault:
    """A fault by its file, and by its name where the file holds several; it is code, and it is run."""
    module = _load(path)
    if row := getattr(module, "ROWS", {}).get(name):
        vars(module).update(row, __doc__=row["SUMMARY"])
    problem = _problem(module)
    if problem:
        raise UsageError(f"{path} is not a fault: {problem}", "docs/drills.md says what a fault's file has.")
    summary = (module.__doc__ or "").strip().splitlines()[0].rstrip(".")
    given = vars(module)
    return Fault(
        name or path.stem,
        path,
        module,
        summary,
        given["CAUSE"],
        given["CATEGORY"],
        given["WORKLOAD"],
        tuple(given.get("ACCEPT", ())),
        tuple(given.get("NEEDS", ())),
        int(given.get("LEAST_WORLD", 2)),
        cast("Ending", given.get("ENDING", "hang")),
        tuple(given.get("BACKENDS", BOTH)),
        bool(given.get("GUARD", False)),
    )


def workloads() -> list[str]:
    """The training programs that faults may name."""
    support = ("__init__", "plan", "rank", "main", "host")
    return sorted(file.stem for file in (HERE / "workloads").glob("*.py") if file.stem not in support)


def _load(path: Path) -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"whichrank_fault_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} can't be loaded: {type(error).__name__}: {error}") from error
    return module


def _problem(module: ModuleType) -> str:
    """What keeps a module from being a fault; empty where nothing does."""
    given: Mapping[str, Any] = vars(module)
    missing = [name for name in ("CAUSE", "CATEGORY", "WORKLOAD") if not isinstance(given.get(name), str)]
    if missing or not (module.__doc__ or "").strip():
        return f"it lacks {', '.join(missing) or 'a docstring'}"
    known = causes()
    unknown = [cause for cause in (given["CAUSE"], *given.get("ACCEPT", ())) if cause not in known]
    if unknown:
        return f"'{unknown[0]}' is not a cause of the taxonomy"
    if given["WORKLOAD"] not in workloads():
        return f"there is no workload '{given['WORKLOAD']}' (there are {', '.join(workloads())})"
    strange = [need for need in given.get("NEEDS", ()) if need not in NEEDS]
    if strange:
        return f"'{strange[0]}' is not a need (there are {', '.join(NEEDS)})"
    if given["CAUSE"] != "healthy" and not any(callable(given.get(hook)) for hook in HOOKS):
        return f"it has none of {', '.join(HOOKS)}"
    return ""


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None and any(Path("/dev").glob("nvidia[0-9]*"))


def _has_namespaces() -> bool:
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "nft", "tc"))


def _has_mounts() -> bool:
    """A file system in a file, to be mounted and frozen."""
    tools = all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "fsfreeze"))
    return os.geteuid() == 0 and tools and Path("/dev/loop-control").exists()


NEEDS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "namespaces": _has_namespaces,
    "gpu": _has_gpu,
    "mounts": _has_mounts,
    "memory control groups": can_limit_memory,
}
