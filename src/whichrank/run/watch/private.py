"""The private folder of a watched job: the hook that gets into its processes, and what they leave there."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.files import replace_text
from whichrank.worker import startup, surroundings

PREFIX = "whichrank-"
OWNERS, RESULTS = "owners", "results"
ROOM = 1 << 20
HOOK = "hook"
PACKAGE = "_whichrank_inside"
_COPIED = (
    "model/last_words.py", "worker/lastwords.py", "worker/startup.py", "worker/surroundings.py",
    "worker/network.py", "worker/sockets.py", "worker/main_thread.py", "worker/standing.py", "worker/steps.py",
    "worker/written.py", "worker/exits.py", "worker/resume.py", "worker/waiting.py", "worker/groups.py",
    "worker/marks.py", "worker/recorder_frames.py", "worker/variables.py",
)  # fmt: skip

# Runs in any Python of the job. The site's own sitecustomize then runs as if this one were not there.
_SITECUSTOMIZE = '''\
"""Put here by `whichrank run` for one job; not part of the site."""
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
try:
    from {package} import startup
    startup.begin()
except Exception:
    pass
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != _here]


def _chain():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_chain()
'''


def make() -> Path:
    """A fresh folder that only this user can read, with the hook in it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        claim(folder)
        install(folder)
        _reserve(folder)
    except OSError:
        remove(folder)
        raise
    return folder


def _reserve(folder: Path) -> None:
    """Room for the words of many ranks is there now, or the job is not watched at all."""
    probe = folder / ".room"
    with probe.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, ROOM)
    probe.unlink()


def claim(folder: Path, *others: int) -> None:
    """Say whose folder it is, too: while one of these processes lives, it stays."""
    owners = [(pid, row.start_ticks) for pid in (os.getpid(), *others) if (row := processes.stat(pid)) is not None]
    before = [pair for pair in _owners(folder) if pair not in owners and processes.same(*pair)]
    lines = [processes.realm(), *(f"{pid} {ticks}" for pid, ticks in (*before, *owners))]
    replace_text(folder / OWNERS, "\n".join(lines) + "\n", mode=0o600)


def bare() -> Path:
    """A folder without the hook: by it a job that is watched from outside is found."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def watcher_of(folder: Path) -> int | None:
    """The process, other than this one, that watches the job of this folder and lives; None where nobody does."""
    pid, ticks = next(iter(_owners(folder)), (0, 0))
    return pid if pid not in (0, os.getpid()) and processes.same(pid, ticks) else None


def _owners(folder: Path) -> list[tuple[int, int]]:
    """Pid and start of those who have said so, the first one first; none where that was on another host."""
    try:
        realm, *lines = (folder / OWNERS).read_text(encoding="ascii").splitlines()
        pairs = [line.split() for line in lines]
        return [(int(pid), int(ticks)) for pid, ticks in pairs] if realm == processes.realm() else []
    except (OSError, ValueError):
        return []


def note_results(folder: Path, out: Path) -> None:
    """Where the results of this job go: whoever looks for watched jobs finds it here."""
    replace_text(folder / RESULTS, f"{out}\n", mode=0o600)


def results_of(folder: Path) -> Path | None:
    try:
        return Path((folder / RESULTS).read_text(encoding="utf-8").rstrip("\n"))
    except (OSError, ValueError):
        return None


def sweep() -> None:
    """Remove the folders of jobs that have gone without a watcher to clean up behind them.

    Who lives in another container can't be seen from here: folders that were made there are left alone.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            status = folder.lstat()
            mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if mine and _made_here(folder) and not in_use(folder):
                remove(folder)
        except (OSError, ValueError):
            continue


def _made_here(folder: Path) -> bool:
    return (folder / OWNERS).read_text(encoding="ascii").partition("\n")[0] == processes.realm()


def in_use(folder: Path, *, besides_us: bool = False) -> bool:
    """Whether an owner lives, a process that left words here, or one that was told to leave some."""
    pairs = [tuple(line.split()) for line in (folder / OWNERS).read_text(encoding="ascii").splitlines()]
    pairs += [tuple(path.name.split(".")[:2]) for path in folder.glob(f"*{layout.SUFFIX}")]
    numbers = [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(p.isdigit() for p in pair)]
    if any(processes.same(*pair) for pair in numbers if not besides_us or pair[0] != os.getpid()):
        return True
    return any(processes.environ(pid).get(startup.FOLDER) == str(folder) for pid in processes.everybody())


def install(folder: Path) -> None:
    """Copy what runs inside the job: its Python need not have whichrank, and must not get another one."""
    inside = folder / HOOK / PACKAGE
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    home = Path(layout.__file__).parent.parent
    (inside / "guard").mkdir()
    for name in (*_COPIED, *(f"worker/guard/{path.name}" for path in sorted((home / "worker/guard").glob("*.py")))):
        text = (home / name).read_text(encoding="utf-8")
        for room in ("model", "worker"):
            text = text.replace(f"from whichrank.{room}.", f"from {PACKAGE}.")
            text = text.replace(f"from whichrank.{room} ", f"from {PACKAGE} ")
        (inside / name.partition("/")[2]).write_text(text, encoding="utf-8")
    (folder / HOOK / "sitecustomize.py").write_text(hook_source(PACKAGE), encoding="utf-8")


def hook_source(package: str) -> str:
    """The sitecustomize that calls `begin` of the package's module `startup`."""
    return _SITECUSTOMIZE.format(package=package)


def variables(folder: Path, environ: Mapping[str, str], guard: str = "") -> dict[str, str]:
    """What lets the hook in: its folder first on the path of every Python that the job starts."""
    old = environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder / HOOK), *([old] if old else [])])
    told = {"PYTHONPATH": path, startup.FOLDER: str(folder), surroundings.WATCHER: str(os.getpid())}
    return {**told, startup.GUARD: guard} if guard else told


def leave(folder: Path) -> None:
    """Remove the folder, unless a process of the job outlives it.

    Such a process has the hook on its path: were the folder gone, anybody could make one of that name. The next run
    sweeps it away."""
    try:
        busy = in_use(folder, besides_us=True)
    except (OSError, ValueError):
        busy = False
    if not busy:
        remove(folder)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
