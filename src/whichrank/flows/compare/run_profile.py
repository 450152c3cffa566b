"""One run as `compare` sees it: everything that two runs can differ in, without what differs in every two runs."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct, field

from whichrank.evidence.collectors import conditions
from whichrank.evidence.intake import collect

_LARGEST, _MOST = 64 << 20, 100_000
NOISE = re.compile(
    r"^(?:RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|NODE_RANK|MASTER_PORT|MASTER_ADDR|HOSTNAME|NCCL_RAS_ADDR|NCCL_HOSTID"
    r"|TORCHELASTIC_ERROR_FILE|TORCHELASTIC_RUN_ID|TORCHELASTIC_RESTART_COUNT|TORCH_FR_DUMP_TEMP_FILE|TMPDIR"
    r"|TORCH_NCCL_DEBUG_INFO_TEMP_FILE|TORCH_NCCL_DEBUG_INFO_PIPE_FILE|TORCH_WORKER_SERVER_SOCKET|NCCL_DEBUG_FILE"
    r"|PET_\w+|PMI\w*|OMPI_(?!MCA_)\w+|WHICHRANK_\w+|PYTHONPATH"
    r"|SLURM_(?!NTASKS$|CPUS_PER_TASK$|MEM_|JOB_PARTITION$|JOB_NUM_NODES$|GPUS|TRES)\w+)$"
)
"""Variables that say which process, port or folder it is: no two runs have the same."""
_UNIQUE = re.compile(
    r"^--?(?:master[-_](?:port|addr)|rdzv[-_](?:endpoint|id)|port|main_process_port|node[-_]rank"
    r"|(?:run|exp|experiment|job|wandb)[-_]?(?:name|id)"
    r"|(?:out|output|log|logging|save|tensorboard|work|results?)[-_]?(?:dir|path|file|folder)?)$"
)
"""Arguments that name a run, a port, or where its output goes."""


class Profile(Struct):
    """What is known of a run."""

    whole: bool = False
    """Whether its conditions were kept; of older bundles only a part of them is known."""
    settings: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Variable -> rank -> value."""
    limits: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    cpus: dict[int, str] = field(default_factory=dict)
    nice: dict[int, str] = field(default_factory=dict)
    host: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Fact of a machine -> host -> value."""
    packages: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, str] = field(default_factory=dict)
    gpus: list[dict[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    script: str = ""
    commit: str = ""
    command: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    @property
    def world(self) -> int | None:
        """How many ranks there were."""
        value = self.run.get("world_size")
        if not isinstance(value, int):
            value = _number(next(iter(self.settings.get("WORLD_SIZE", {}).values()), ""))
        return value

    @property
    def known(self) -> bool:
        """Whether it is a run at all."""
        return bool(self.run or self.settings or self.verdict or self.command)

    def stragglers(self) -> dict[int, dict[str, Any]]:
        """Ranks that held the others up: by the verdict on a slow run, and by what the watcher has seen."""
        verdict = as_dict(self.verdict.get("verdict"))
        who = as_dict(verdict.get("culprits")) if verdict.get("category") == "slow" else {}
        place = next(
            (f"{code.get('file')}:{code.get('line')}" for code in map(as_dict, _listed(who.get("code")))), None
        )
        rows = [{"rank": rank, "place": place} for rank in _listed(who.get("ranks"))]
        rows += map(as_dict, _listed(self.run.get("stragglers")))
        return {row["rank"]: row for row in rows if isinstance(row.get("rank"), int)}

    def rates(self) -> dict[int, float]:
        """Collectives per second of each rank, while it made progress."""
        before: dict[int, dict[str, Any]] = {}
        found: dict[int, list[float]] = defaultdict(list)
        for row in self.history:
            rank, done = row.get("rank"), row.get("completed")
            at = _seconds(row.get("time"))
            if isinstance(rank, int) and isinstance(done, int) and at is not None:
                last = before.get(rank)
                if last and at > last["at"] and done > last["done"] > 0 and last["pid"] == row.get("pid"):
                    found[rank].append((done - last["done"]) / (at - last["at"]))
                before[rank] = {"at": at, "done": done, "pid": row.get("pid")}
        return {rank: median(rates) for rank, rates in found.items()}

    def memory(self) -> dict[int, int]:
        """The most memory that each rank had, in bytes."""
        found: dict[int, int] = defaultdict(int)
        for row in self.history:
            rank, size = row.get("rank"), row.get("memory_bytes")
            if isinstance(rank, int) and isinstance(size, int):
                found[rank] = max(found[rank], size)
        return dict(found)


def profile(path: Path) -> Profile:
    """All that the files below a path (a folder of results, a bundle, an archive of one) tell."""
    found = Profile()
    if path.is_dir():
        files = [(str(file.relative_to(path)), file) for file in _below(path)]
        _take_all(found, files)
    else:
        with collect([path]) as intake:
            _take_all(found, [(item.label, item.path) for item in intake.items])
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Plain files below a folder; what was put aside (earlier attempts, withdrawn alarms) is another run's."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("attempts", "resumed", "withdrawn", "torch"))
        yield from (file for name in sorted(names) if (file := Path(place) / name).is_file() and not file.is_symlink())
        seen += len(names)
        if seen > _MOST:
            return


def _take_all(found: Profile, files: list[tuple[str, Path]]) -> None:
    files = sorted((label, path) for label, path in files if path.stat().st_size <= _LARGEST)
    files.sort(key=lambda file: file[0].count("/"))
    found.whole = any(label.rsplit("/", 1)[-1] == conditions.FILE for label, _ in files)
    for label, path in files:
        _take(found, label.rsplit("/", 1)[-1], path)


def _take(found: Profile, name: str, path: Path) -> None:
    """What one file adds; where the conditions are kept in a file of their own, the others only repeat them."""
    if name == conditions.FILE:
        _conditions(found, _document(path))
    elif name == "run.json":
        found.run = found.run or _document(path)
    elif name == "verdict.json":
        found.verdict = found.verdict or _document(path)
    elif name == "history.jsonl":
        found.history = found.history or _lines(path)
    elif found.whole:
        return
    elif rank := re.fullmatch(r"rank_(\d+)\.env", name):
        for variable, _, value in (line.partition("=") for line in _text(path).splitlines()):
            _setting(found, int(rank[1]), variable, value)
    elif pid := re.fullmatch(r"proc\.(\d+)\.limits\.txt", name):
        for limit, value in conditions.limits_of(_text(path)).items():
            found.limits[limit][int(pid[1])] = value
    elif re.fullmatch(r"net\.\d+\.txt", name):
        found.interfaces |= conditions.interfaces(_text(path))
    elif name == "gpus.before.csv":
        found.gpus = found.gpus or _gpus(_text(path))


def _conditions(found: Profile, said: dict[str, Any]) -> None:
    host = as_dict(said.get("host"))
    name = str(host.get("name", ""))
    found.hosts.add(name)
    for fact, value in host.items():
        if fact != "name" and value is not None:
            found.host[fact][name] = str(value)
    found.packages |= {str(k): str(v) for k, v in as_dict(said.get("packages")).items()}
    found.interfaces |= {str(k): str(v) for k, v in as_dict(said.get("interfaces")).items()}
    found.gpus += _gpus(str(said.get("gpus") or ""))
    code = as_dict(said.get("code"))
    found.files |= {str(k): str(v) for k, v in as_dict(code.get("files")).items()}
    found.script, found.commit = str(code.get("script") or ""), str(code.get("commit") or "")
    command = said.get("command")
    found.command = [str(word) for word in command] if isinstance(command, list) else []
    ranks = said.get("ranks")
    for row in ranks if isinstance(ranks, list) else []:
        rank = row.get("rank") if isinstance(row, dict) else None
        if not isinstance(rank, int):
            continue
        for variable, value in {**as_dict(said.get("environment")), **as_dict(row.get("environment"))}.items():
            _setting(found, rank, variable, str(value))
        for limit, value in {**as_dict(said.get("limits")), **as_dict(row.get("limits"))}.items():
            found.limits[limit][rank] = str(value)
        for field_name in ("cpus", "nice"):
            if row.get(field_name) is not None:
                getattr(found, field_name)[rank] = str(row[field_name])


def _setting(found: Profile, rank: int, name: str, value: str) -> None:
    if not NOISE.match(name) or name == "WORLD_SIZE":
        found.settings[name][rank] = value


def arguments(command: list[str]) -> list[str]:
    """The words of a command without what no two runs have in common: ports, ids and the folders of programs."""
    kept, skip = [], False
    for word in command:
        name, equals, value = word.partition("=")
        if skip:
            skip = False
        elif _UNIQUE.match(name):
            skip = not equals
        elif equals and name.startswith("-"):
            kept.append(f"{name}={_base(value)}")
        else:
            kept.append(_base(word))
    return kept


def _base(word: str) -> str:
    """The last part of a path: the same program in another folder is the same program."""
    return word.rstrip("/").rsplit("/", 1)[-1] if word.startswith(("/", "./", "../", "~/")) else word


def _gpus(text: str) -> list[dict[str, str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if "," in line]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]] if rows else []


def _document(path: Path) -> dict[str, Any]:
    try:
        return as_dict(json.loads(_text(path)))
    except (ValueError, RecursionError):
        return {}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in _text(path).splitlines():
        try:
            found.append(as_dict(json.loads(line)))
        except (ValueError, RecursionError):
            continue
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def as_dict(value: Any) -> dict[str, Any]:
    """The value, if it is an object of JSON."""
    return dict(value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _seconds(text: Any) -> float | None:
    from datetime import datetime

    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
