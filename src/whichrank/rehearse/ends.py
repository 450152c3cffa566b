"""Ranks that crashed, or that sit somewhere of their own while the others wait: the script's fault, or ours?"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from whichrank.model.findings import CodePlace
from whichrank.rehearse import wording
from whichrank.rehearse.positions import Position, places

UNUSED = ("Expected to have finished reduction in the prior iteration", "marked as ready twice")
NETWORK = ("URLError", "gaierror", "ConnectionError", "ConnectTimeout", "NewConnectionError", "MaxRetryError",
           "LocalEntryNotFoundError", "OfflineModeIsEnabled", "HTTPError", "ProxyError")  # fmt: skip
SURROUNDINGS = ("ModuleNotFoundError", "ImportError", "FileNotFoundError", "PermissionError", "MemoryError",
                "NotImplementedError", "KeyboardInterrupt", "ArgumentError")  # fmt: skip
INTERNAL = ("AttributeError", "AssertionError")
"""Raised inside a library: more likely a stand-in that lacks something than a mistake of the script."""
NO_GPU = ("cuda", "cudnn", "nccl", "triton", "not compiled with", "no nvidia", "hip ", "gpu")
NO_ACCELERATOR = ("accelerator device", "not compiled with cuda")
"""Never a mistake of the script, whichever part of torch says it."""
LIBRARIES = ("site-packages", "/lib/python", "/whichrank/worker/", "<")
PHASES = (
    ("rank-stuck-in-data-loading", ("dataloader", "dataset", "__getitem__", "_next_data", "load_batch", "fetch")),
    ("rank-stuck-in-checkpoint", ("checkpoint", "save", "serialization")),
    ("rank-stuck-in-evaluation", ("eval", "valid", "score", "judge")),
    ("rank-stuck-in-preprocessing", ("preprocess", "download", "prepare", "tokeniz")),
)


@dataclass(frozen=True, slots=True)
class Ending:
    cause: str
    """Empty where it says nothing about the script."""
    ranks: tuple[int, ...]
    message: str
    places: tuple[CodePlace, ...] = ()


def crash(positions: dict[int, Position]) -> Ending:
    """What the ends of the ranks mean."""
    down = tuple(sorted(rank for rank, position in positions.items() if position.state == "crashed"))
    first = positions[down[0]]
    error = first.error
    said = f"{wording.ranks(down)} failed: {wording.error(first)}"
    if error is None:
        return _by_status(first, down)
    if any(sign in error["message"] for sign in UNUSED):
        return Ending("unused-parameters", down, f"{said[:400]}")
    if ours(error):
        return Ending("", down, f"{said}. A rehearsal lacks what the script needed there")
    raised = (error["raised_in"] or ["", 0, ""])[0]
    if any(part in raised for part in ("/torch/distributed/", "/worker/rehearsal/group.py")) and error["type"] in (
        "ValueError",
        "RuntimeError",
        "TypeError",
    ):
        return Ending("invalid-collective-call", down, f"{said}.")
    alike = [p for p in positions.values() if p.error and p.error["message"] == error["message"]]
    if len(down) == len(positions) or len(alike) > len(positions) / 2:
        return Ending("", down, f"the script fails on every rank: {wording.error(first)}")
    return Ending(
        "rank-exception", down, f"{said}; the other ranks would wait for it until they time out or are ended."
    )


def _by_status(first: Position, down: tuple[int, ...]) -> Ending:
    code = first.code or 0
    if code == -signal.SIGKILL:
        return Ending("", down, f"{wording.ranks(down)} were killed: most likely the rehearsal ran out of memory")
    if code < 0:
        name = signal.Signals(-code).name
        return Ending("rank-native-crash", down, f"{wording.ranks(down)} ended by {name} in native code.")
    return Ending("rank-exception", down, f"{wording.ranks(down)} ended with exit code {code}.")


def ours(error: dict[str, Any]) -> bool:
    """Whether an exception comes from what a rehearsal takes away: network, GPU, files, packages."""
    kinds, text = set(error["chain"]), error["message"].lower()
    if kinds & set(NETWORK) or kinds & set(SURROUNDINGS) or error["type"] == "SystemExit":
        return True
    if any(sign in text for sign in NO_ACCELERATOR):
        return True
    raised = (error["raised_in"] or ["", 0, ""])[0]
    library = ("site-packages" in raised or "/torch/" in raised) and "/torch/distributed/" not in raised
    if "/worker/rehearsal/" in raised:
        return bool(error["type"] != "ValueError")
    return library and (error["type"] in INTERNAL or any(sign in text for sign in NO_GPU))


def stuck(record: dict[str, Any], positions: dict[int, Position]) -> Ending:
    """Ranks that do nothing, or sleep for longer than the others may wait."""
    late = record.get("late")
    if late:
        ranks = tuple(sorted(int(rank) for rank in late["ranks"]))
        found = tuple(places(at, int(rank))[0] for rank, at in late["ranks"].items() if places(at))
        frames = [place for rank, at in late["ranks"].items() for place in places(at, int(rank))]
        text = (
            f"{wording.do(ranks, 'sleep', 'sleeps')} for {late['waited_s']:.0f} s while the others wait with a "
            f"timeout of {late['limit_s']:.0f} s."
        )
        return Ending(_cause(frames, [positions[rank] for rank in ranks]), ranks, text, found)
    idle = [p for p in positions.values() if p.state == "running"]
    if not idle:
        return Ending("", (), "ranks that never joined do nothing, and the others wait for them")
    told = [(p, places(record["ranks"][str(p.rank)]["running_at"] or [], p.rank)) for p in idle]
    own = [(p, [place for place in frames if not any(part in place.file for part in LIBRARIES)]) for p, frames in told]
    ranks = tuple(sorted(p.rank for p in idle))
    where = next((f" at {frames[0]}" for _, frames in own if frames), "")
    text = f"{wording.do(ranks, 'do', 'does')} nothing{where}, and the others wait."
    every = [place for _, frames in told for place in frames]
    return Ending(_cause(every, idle), ranks, text, tuple(frames[0] for _, frames in own if frames))


def _cause(frames: list[CodePlace], ranks: list[Position]) -> str:
    """A rank that has not made its process group yet is missing there, whatever it does instead."""
    if not all(position.joined for position in ranks):
        return "missing-rank-at-init"
    return phase(frames)


def phase(frames: list[CodePlace]) -> str:
    words = [f"{place.file.rpartition('/')[2]} {place.function}".lower() for place in frames]
    for cause, signs in PHASES:
        if any(sign in word for word in words for sign in signs):
            return cause
    return "rank-stuck-in-user-code"
