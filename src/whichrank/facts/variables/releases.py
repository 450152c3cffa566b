"""Which versions of torch and NCCL an image tag, a pin or a module name stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from whichrank.facts.tables import rows
from whichrank.facts.variables.environment import Version, version


class Release(NamedTuple):
    """Versions that belong together; empty where not known."""

    torch: Version = ()
    nccl: Version = ()

    def __or__(self, other: Release) -> Release:
        """This one, with what the other says more exactly."""
        return Release(other.torch or self.torch, other.nccl or self.nccl)


_NUMBER = r"(\d+\.\d+(?:\.\d+){0,2})"
_NGC = r"nvidia[/+#_-]+pytorch[:_+@-](\d\d\.\d\d)|\bpytorch[:_+-](\d\d\.\d\d)-py3"
# Wheels and the images that are made of them carry the NCCL of the wheel.
_WHEEL = (
    rf"(?<![\w.-])torch(?:\[[\w,]*\])?\s*(?:===?|~=)\s*v?{_NUMBER}"
    rf"|pytorch/pytorch:{_NUMBER}|pytorch-training:{_NUMBER}|mosaicml/pytorch:{_NUMBER}|runpod/pytorch:{_NUMBER}"
    rf"|[/:@_-]torch-?v?{_NUMBER}(?:[-+_]|$)"
)
_OTHER_TORCH = (
    rf"(?<![\w/.-])pytorch(?:-cuda)?={{1,2}}{_NUMBER}(?![\d.]*-cuda)|(?<![\w/.-])(?:py)?torch/{_NUMBER}"
    rf"|[:/]\S*pytorch[_-]{_NUMBER}(?![\d.]*-py3\b)|deeplearning-platform\S*pytorch-cu\d+\.(\d-\d+)"
)
_NCCL = (
    rf"(?i)nvidia-nccl-cu\d\d\s*(?:===?|~=)\s*{_NUMBER}|libnccl(?:2|-dev)={_NUMBER}|(?<![\w/.-])(?:lib)?nccl/{_NUMBER}"
    rf"|(?<![\w/.-])nccl={{1,2}}{_NUMBER}|[:_-]nccl-?v?{_NUMBER}|\bNCCL_VERSION[= ]v?{_NUMBER}"
    rf"|nccl(?:\.git)?\s.*-b\s+v{_NUMBER}"
)


@cache
def _table() -> dict[str, Release]:
    return {
        row["release"]: Release(version(row["torch"]), version(row["nccl"])) for row in rows("variables/releases.csv")
    }


def release_in(text: str) -> Release:
    """The versions that a text pins: an image name, the arguments of pip, a module."""
    found = Release()
    if not re.search(r"\d[.-]\d", text) or not re.search(r"torch|nccl", text, re.IGNORECASE):
        return found
    if match := re.search(_NGC, text):
        found |= _table().get(f"ngc {match[1] or match[2]}", Release())
    if match := re.search(_WHEEL, text):
        torch = version(next(group for group in match.groups() if group))
        wheel = _table().get("wheel " + ".".join(map(str, torch[:2])), Release())
        found = Release(torch, () if "rocm" in text else wheel.nccl)
    elif match := re.search(_OTHER_TORCH, text):
        found |= Release(version(next(group for group in match.groups() if group).replace("-", ".")))
    if match := re.search(_NCCL, text):
        found |= Release((), version(next(group for group in match.groups() if group)))
    return found


_SAID = rf"(?i)\b(?:(py)?torch|NCCL)[ =]*v?{_NUMBER}"
_NOT_SAID = (
    r"(?i)since|from|before|after|until|need|requir|[<>]|older|newer|later|earlier|up to|and up|upgrad|was|only in"
    r"|removed|added|deprecat|will|once|when"
)

# A setting that somebody commented out; what stands behind it is about that setting.
_CODE = re.compile(r"[\s#]{0,8}(?:export\s|ENV\s|-\s|-[exE]\s)?\s{0,4}[A-Z][A-Z0-9_]{3,60}(?:=|:\s)\S")
_CLAUSE = re.compile(r"[.;](?:\s|$)")


def said_in(comments: Iterable[str]) -> Release:
    """The versions that comments say the job runs with ("torch 2.7 in this image"); nothing where they disagree."""
    torch: set[Version] = set()
    nccl: set[Version] = set()
    for clause in (clause for comment in comments if not _CODE.match(comment) for clause in _CLAUSE.split(comment)):
        if "torch" not in clause and "NCCL" not in clause and "Torch" not in clause:
            continue
        for match in re.finditer(_SAID, clause) if not re.search(_NOT_SAID, clause) else ():
            (nccl if match.group()[:4].upper() == "NCCL" else torch).add(version(match[2]))
    found = Release(torch.pop() if len(torch) == 1 else (), nccl.pop() if len(nccl) == 1 else ())
    if found.torch and not found.nccl and not nccl:
        wheel = _table().get("wheel " + ".".join(map(str, found.torch[:2])), Release())
        found = Release(found.torch, wheel.nccl)
    return found
