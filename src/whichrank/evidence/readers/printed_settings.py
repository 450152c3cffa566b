"""Settings that ranks or hosts print at their start: variables (`NCCL_PROTO=Simple`), the NCCL package that they
install, the versions that they run (`torch=2.3.0 nccl=2.20.5 driver=550.54.15`), and the precision that they compute
in (`precision=bf16`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.variables.environment import catalogue
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import NCCL_PACKAGE, PRECISION, Environment
from whichrank.records.host import HostVersions

NAME = "printed_settings"
BESIDE = True

_SEARCHED = 1 << 18
"""Bytes at the beginning of a file: settings are printed at the start."""
_MARKS = (
    b"NCCL_",
    b"GLOO_",
    b"TORCH_",
    b"nvidia-nccl",
    b"recision",
    b"dtype",
    b"nccl=",
    b"libnccl ",
    b"nccl:",
    b"torch=",
    b"torch:",
    b"river",
)
_ADVISED = r"(?<!run with )(?<!set )(?<!try )(?<!use )"
"""`(run with NCCL_DEBUG=WARN for details)`: what should be set is not."""
_SET = re.compile(
    rf"(?<![\w$]){_ADVISED}((?:NCCL|GLOO|TORCH|PYTORCH|UCX|FI|OMP|CUDA)_[A-Z0-9_]{{2,60}})=([^\s;,\"'|]{{1,120}})"
)
_SET_IN_DICT = re.compile(
    r"[\"']((?:NCCL|GLOO|TORCH|PYTORCH|UCX|FI|OMP|CUDA)_[A-Z0-9_]{2,60})[\"']\s?:\s?[\"']([^\"'\n]{1,120})[\"']"
)
_PACKAGE = re.compile(r"nvidia[-_]nccl[-_]cu\d{2}(?: ?== ?| ?-| )(\d{1,2}\.\d{1,3}(?:\.\d{1,3}){0,2})")
_VERSION = re.compile(
    r"(?<![\w.-])(?:lib)?(nccl|torch|driver)(?:[_ ]version)?(?:={1,2}|: ?|(?<=libnccl) )"
    r"[\"']?v?(\d{1,4}(?:\.\d{1,4}){1,3})(?![.\d])",
    re.IGNORECASE,
)
_OF_HOST = re.compile(r"\b(?:host|hostname|node)[=:] ?([A-Za-z][\w.-]{0,252})(?=[\s,;]|$)")
_PRECISION = re.compile(
    r"\b(?:(?:mixed|amp|autocast|param|compute|grad)[_ ])?(?:precision|dtype)[\"']?\s?[=:]\s?[\"']?(?:torch\.)?"
    r"(bf16|bfloat16|fp16|float16|half|fp32|float32|tf32)\b",
    re.IGNORECASE,
)
_SAME = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_NOT_OUTPUT = (".py", ".sh", ".sbatch", ".slurm", ".yaml", ".yml", ".json", ".env", ".md", ".toml", ".ini")
_LONGEST, _MOST, _LONG_RANK = 4000, 4096, 8
_VARIABLE = re.compile(rb"([A-Z_][A-Z0-9_]{1,80})=(.{0,4000})")


def sniff(head: bytes, name: str) -> bool:
    """Output that mentions such a setting; not the file that sets them."""
    return not name.lower().endswith(_NOT_OUTPUT) and is_text(head) and any(mark in head for mark in _MARKS)


def read(item: Item) -> Reading:
    """What every rank or host printed, joined; nothing where only one of them did."""
    clock, hint = clock_of(item), hint_of_path(item.label)
    found: dict[tuple[int | None, str | None], Environment] = {}
    versions: list[HostVersions] = []
    lines = item.head(_SEARCHED).split(b"\n")
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST or not any(map(line.__contains__, _MARKS)):
            continue
        voice = listen(line, clock)
        who = (voice.rank if voice.rank is not None else hint.rank, voice.host)
        if (run := _versions(voice.text)) and len(versions) < _MOST:
            named = _OF_HOST.search(voice.text) if voice.host is None else None
            host = named[1] if named else voice.host
            ref = Ref(item.label, f"line {number}", voice.text.strip()[:300], who[0], host)
            versions.append(HostVersions(ref, number, run, host))
        told = _told(voice.text)
        if who == (None, None) or not told or len(found) >= _MOST:
            continue
        if who not in found:
            ref = Ref(item.label, f"line {number}", voice.text.strip()[:300], *who)
            found[who] = Environment(ref=ref, line=number, rank=who[0], host=who[1])
        found[who].variables.update(told)  # the last one counts
    for number, rank, told in _processes(lines):
        ref = Ref(item.label, f"line {number}", " ".join(f"{n}={v}" for n, v in told.items())[:300], rank)
        found.setdefault((rank, None), Environment(ref=ref, line=number, rank=rank)).variables.update(told)
    # Variables are compared where several ranks print them into one file; a precision is one, whoever prints it where.
    kept = [e for e in found.values() if len(found) > 1 or (e.rank is not None and PRECISION in e.variables)]
    return (
        Reading([*kept, *versions])
        if kept or versions
        else Reading([], "ignored", "no settings of several ranks or hosts")
    )


def _processes(lines: Sequence[bytes]) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Line, rank and known variables of each process whose environment is listed, a variable per line."""
    block: dict[str, str] = {}
    began = 0
    for number, line in enumerate([*lines, b""], 1):
        match = _VARIABLE.fullmatch(line[:_LONGEST].rstrip()) if b"=" in line else None
        if match:
            began = began or number
            block[match[1].decode()] = match[2].decode("utf-8", "replace")
            continue
        rank = block.get("RANK", "")
        told = {name: value[:120] for name, value in block.items() if name in catalogue()}
        if rank.isdecimal() and len(rank) < _LONG_RANK and told:
            yield began, int(rank), told
        block, began = {}, 0


def _versions(text: str) -> dict[str, str]:
    return {name.lower(): version for name, version in _VERSION.findall(text)}


def _told(text: str) -> dict[str, str]:
    told = {name: value for name, value in (*_SET.findall(text), *_SET_IN_DICT.findall(text)) if name in catalogue()}
    packages: list[str] = _PACKAGE.findall(text)
    if packages:
        told[NCCL_PACKAGE] = packages[-1]
    if precision := _PRECISION.search(text):
        said = precision[1].lower()
        told[PRECISION] = _SAME.get(said, said)
    return told
