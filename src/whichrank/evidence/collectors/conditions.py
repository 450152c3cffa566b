"""Under what conditions a job runs: versions, settings, limits, code, network. Two runs are compared by them.

Everything is read from /proc and from files; nothing of the job is run, stopped or asked.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import environment, processes

PROC = Path("/proc")
MARK = "whichrank_conditions"
FILE = "conditions.json"
_MORE = re.compile(
    r"^(?:LD_|PYTHON|PYTORCH_|TORCHINDUCTOR_|CUBLAS|CUDNN_|TRITON_|TOKENIZERS_|HF_|TRANSFORMERS_|XLA_|NVTE_|MALLOC_"
    r"|KMP_|NUMEXPR_|OPENBLAS_|LC_ALL$|LANG$|TMPDIR$)"
)
"""Settings that are of no use as evidence, but may be what changed."""
_LIMITS = (
    "Max open files",
    "Max locked memory",
    "Max processes",
    "Max stack size",
    "Max address space",
    "Max file size",
)
_PACKAGES = re.compile(r"^(?P<name>.+?)-(?P<version>\d[^-]*)\.(?:dist|egg)-info$")
_FILES, _BYTES = 2000, 32 << 20
"""Of code that is read: more is no training script's folder."""
_LINK = re.compile(
    r"\d{1,9}: (?P<name>[^:@]{1,64})[@:][^<\n]{0,80}<(?P<flags>[^>]{0,200})> mtu (?P<mtu>\d{1,9})\b"
    r".{0,120}? state (?P<state>\w{1,20})"
)
_CONFIGURATION = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh", ".sbatch", ".slurm")
_LARGEST = 256 << 10
"""Of a file with settings."""
_WRITTEN = {"wandb", "mlruns", "outputs", "output", "out", "runs", "logs", "lightning_logs", "checkpoints", "multirun"}
"""Folders that runs write to: the configuration in there is a copy."""
_SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".tox", ".mypy_cache"}


def of_job(
    command: Sequence[str], ranks: Mapping[int, tuple[int, Mapping[str, str]]], network: str = ""
) -> dict[str, Any]:
    """What is true of this host's part of a job: its ranks by their number, each with its pid and its environment."""
    first = next(iter(ranks.values()), (os.getpid(), {}))[0]
    settings = {rank: kept(environ or processes.environ(pid)) for rank, (pid, environ) in ranks.items()}
    common = _common(settings.values())
    limits = {rank: limits_of(processes.limits(pid)) for rank, (pid, _) in ranks.items()}
    same = _common(limits.values())
    folder = _folder(first)
    return {
        MARK: 1,
        "command": without_secrets(command),
        "host": {
            "name": platform.node(),
            "kernel": platform.release(),
            "memory_kb": _memory(),
            "cgroup_memory": _cgroup_memory(first),
            "shm_kb": _shm(first),
            "driver": _driver(),
        },
        "packages": packages(first),
        "code": code(folder, command),
        "interfaces": interfaces(network),
        "environment": common,
        "limits": same,
        "ranks": [
            {
                "rank": rank,
                "cpus": _allowed_cpus(pid),
                "nice": _nice(pid),
                "environment": _besides(settings[rank], common),
                "limits": _besides(limits[rank], same),
            }
            for rank, (pid, _) in sorted(ranks.items())
        ],
    }


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that may be kept, without secrets."""
    more = {name: environment.redacted(name, value) for name, value in environ.items() if _MORE.match(name)}
    return dict(sorted({**environment.kept(environ), **more}.items()))


def without_secrets(command: Sequence[str]) -> list[str]:
    """The words of a command; what follows a name such as --api-key is not kept."""
    found, hidden = [], False
    for word in command:
        name, equals, value = word.partition("=")
        if hidden and not word.startswith("-"):
            found.append(environment.REMOVED)
        elif equals:
            found.append(f"{name}={environment.redacted(name.replace('-', '_'), value)}")
        else:
            found.append(environment.redacted("", word))
        known = environment.redacted(name.replace("-", "_"), "")
        hidden = word.startswith("-") and not equals and known == environment.REMOVED
    return found


def limits_of(text: str) -> dict[str, str]:
    """The soft limits of /proc/PID/limits that jobs run into."""
    found = {}
    for line in text.splitlines():
        name = next((name for name in _LIMITS if line.startswith(name)), "")
        if name and (words := line[len(name) :].split()):
            found[name.removeprefix("Max ")] = words[0]
    return found


def packages(pid: int) -> dict[str, str]:
    """Versions of Python and of the packages beside those that the process has loaded, by the folders they are in."""
    places, versions = set(), {}
    with suppress(OSError):
        for line in (PROC / str(pid) / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            if found := re.search(r"(/\S*?/python(\d+\.\d+)/(?:site|dist)-packages)/", line):
                places.add(found[1])
                versions["python"] = found[2]
    for name in processes.environ(pid).get("PYTHONPATH", "").split(os.pathsep):
        places.add(name)
    for place in sorted(places):
        with suppress(OSError):
            for entry in os.scandir(place or "/nonexistent"):
                if found := _PACKAGES.match(entry.name):
                    versions.setdefault(found["name"].lower().replace("_", "-"), found["version"])
    return versions


def code(folder: Path, command: Sequence[str]) -> dict[str, Any]:
    """The code and the configuration around the script, by the sum of their content; the commit, where there is one."""
    scripts = [folder / word for word in command if word.endswith(".py")]
    scripts = [script for script in scripts if script.is_file()]
    root = scripts[0].parent if scripts else None
    files, left = dict[str, str](), _BYTES
    for path in (*_named_files(folder, command), *_files(root)) if root is not None else ():
        with suppress(OSError):
            left -= path.stat().st_size
            if left < 0 or len(files) >= _FILES:
                break
            data = path.read_bytes()
            lines = data.count(b"\n")
            files[_relative(path, root or folder)] = f"{hashlib.sha256(data).hexdigest()[:16]} {lines} lines"
    return {"script": scripts[0].name if scripts else None, "files": files, "commit": _commit(root or folder)}


def _named_files(folder: Path, command: Sequence[str]) -> Iterable[Path]:
    """Configuration that the command names, wherever it lies: `--config conf/a.yaml`, `--deepspeed=ds.json`."""
    for word in command:
        path = folder / word.rpartition("=")[2]
        with suppress(OSError, ValueError):
            if path.suffix in (*_CONFIGURATION, ".json") and path.is_file() and path.stat().st_size <= _LARGEST:
                yield path


def _relative(path: Path, root: Path) -> str:
    try:
        return str(path.resolve().relative_to(root.resolve()))
    except ValueError:
        return path.name


def _tells(path: Path, root: Path) -> bool:
    """Whether a file says how the job runs: code, or configuration that is not what a run has left behind."""
    if path.suffix == ".py":
        return True
    written = _WRITTEN & {part.lower() for part in path.relative_to(root).parts[:-1]}
    known = path.suffix in _CONFIGURATION or (path.suffix == ".json" and "config" in path.name)
    return known and not written and path.stat().st_size <= _LARGEST


def _files(root: Path) -> Iterable[Path]:
    seen = 0
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        with suppress(OSError):
            yield from (path for name in sorted(names) if _tells(path := Path(place) / name, root))
        seen += len(names) + len(folders)
        if seen > 20 * _FILES:
            return


def _commit(folder: Path) -> str | None:
    """HEAD of the repository, read from its files: git itself may ask, lock or hang."""
    for place in (folder, *folder.parents):
        with suppress(OSError, UnicodeDecodeError):
            head = (place / ".git" / "HEAD").read_text(encoding="ascii").strip()
            if not head.startswith("ref: "):
                return head[:40]
            name = head.removeprefix("ref: ")
            with suppress(OSError):
                return (place / ".git" / name).read_text(encoding="ascii").strip()[:40]
            packed = (place / ".git" / "packed-refs").read_text(encoding="utf-8")
            return next((line[:40] for line in packed.splitlines() if line.endswith(f" {name}")), None)
    return None


def interfaces(text: str) -> dict[str, str]:
    """Name -> MTU and state, from a table as `ip -s addr` prints it; the first mention counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if link := _LINK.match(line):
            up = "up" if "UP" in link["flags"].split(",") else "down"
            found.setdefault(link["name"].strip(), f"mtu {link['mtu']}, {up}")
    return found


def _common(all_of: Iterable[Mapping[str, str]]) -> dict[str, str]:
    every = list(all_of)
    counts = Counter(item for one in every for item in one.items())
    return dict(sorted(item for item, count in counts.items() if count == len(every)))


def _besides(one: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in one.items() if name not in common}


def _folder(pid: int) -> Path:
    try:
        return (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return Path("/")


def _allowed_cpus(pid: int) -> int | None:
    with suppress(OSError):
        return len(os.sched_getaffinity(pid))
    return None


def _nice(pid: int) -> int | None:
    with suppress(OSError):
        return os.getpriority(os.PRIO_PROCESS, pid)
    return None


def _memory() -> int | None:
    with suppress(OSError, ValueError):
        return int((PROC / "meminfo").read_text(encoding="ascii").split()[1])
    return None


def _cgroup_memory(pid: int) -> str | None:
    """The smallest limit on the way up, as the kernel writes it."""
    smallest = None
    with suppress(OSError, ValueError):
        lines = (PROC / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), "")
        place = Path("/sys/fs/cgroup") / own.lstrip("/")
        while place.is_relative_to("/sys/fs/cgroup") and place != Path("/sys/fs/cgroup"):
            with suppress(OSError, ValueError):
                limit = int((place / "memory.max").read_text(encoding="ascii"))
                smallest = limit if smallest is None else min(smallest, limit)
            place = place.parent
    return None if smallest is None else str(smallest)


def _shm(pid: int) -> int | None:
    with suppress(OSError):
        found = os.statvfs(f"{PROC}/{pid}/root/dev/shm")
        return found.f_blocks * found.f_frsize // 1024
    return None


def _driver() -> str | None:
    with suppress(OSError):
        text = (PROC / "driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"Kernel Module[^\d]{0,40}(\d+\.\d+(?:\.\d+)?)", text)
        return found[1] if found else None
    return None
