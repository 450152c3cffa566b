"""The parent of all simulated ranks: imports torch once, then rehearses as often as it is asked to.

One line of JSON on standard input is one rehearsal; one line of JSON on the descriptor that `--answers` names is its
record. A rehearsal is a forked child, which covers the file systems, forks the ranks and referees them.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank.worker.rehearsal import confine

CHILD_SUBREAPER, DEATH_SIGNAL = 36, 1


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    setup = json.loads(sys.stdin.readline())
    network = confine.leave_network() if setup["namespaces"] else "not wanted"
    os.environ.update(setup["environment"])
    if not setup["namespaces"]:
        move_home(Path(setup["scratch"]))
    os.chdir(setup["cwd"])
    sys.path[:0] = setup["path"]
    files = try_cover(setup) if setup["namespaces"] else "not wanted"
    if files and setup["namespaces"]:
        say(answers, {"ready": False, "notes": [], "network": network, "files": files, "torch": ""})
        return  # nothing may be imported where it could write; the caller starts again with a scratch copy
    if files:
        confine.guard((setup["scratch"], setup["log"] or setup["scratch"]), network=bool(network))
    else:
        confine.cover_files(Path(setup["room"]))  # what the script imports may write too
    from whichrank.worker.rehearsal import prepare

    notes = prepare.everything(setup)
    say(answers, {"ready": True, "notes": notes, "network": network, "files": files, "torch": prepare.version()})
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                record = rehearse({**setup, **request}, network)
            except BaseException as error:  # noqa: BLE001 - told, not raised: the parent waits for a record
                record = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
            say(answers, record)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            say(answers, {"outcome": "failed", "error": f"the referee ended with status {status}"})


def move_home(scratch: Path) -> None:
    """Temporary files and what goes into the home folder stay in the scratch copy; models in a cache can be read."""
    home = Path.home()
    os.environ.setdefault("HF_HOME", str(home / ".cache" / "huggingface"))
    os.environ.setdefault("TORCH_HOME", str(home / ".cache" / "torch"))
    for name, variable in (("tmp", "TMPDIR"), ("home", "HOME")):
        folder = scratch / name
        folder.mkdir(exist_ok=True)
        os.environ[variable] = str(folder)


def try_cover(setup: dict[str, Any]) -> str:
    """Whether the file systems can be covered, tried in a child that is thrown away; "" or why not."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, confine.cover_files(Path(setup["room"])).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        why = stream.read().decode()
    os.waitpid(pid, 0)
    return why


def say(answers: Any, record: dict[str, Any]) -> None:
    answers.write(json.dumps(record) + "\n")
    answers.flush()


def rehearse(plan: dict[str, Any], network: str) -> dict[str, Any]:
    """One rehearsal, in a process of its own."""
    from whichrank.worker.rehearsal.record import record
    from whichrank.worker.rehearsal.referee import Referee
    from whichrank.worker.rehearsal.server import Server

    started = time.monotonic()
    libc = ctypes.CDLL(None)
    libc.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if plan["namespaces"]:
        confine.uncover()
    os.chdir(plan["cwd"])
    output = os.open(plan.get("log") or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    files = confine.cover_files(Path(plan["room"])) if plan["namespaces"] else "not wanted"
    if files and plan["namespaces"]:
        return {"outcome": "failed", "error": f"the file systems can't be covered again: {files}"}
    os.chdir(plan["cwd"])
    stacks = Path(tempfile.mkdtemp(prefix="whichrank-stacks-"))
    address = f"\0whichrank-{os.getpid()}-{time.monotonic_ns()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(256)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    referee = Referee(plan["world"] if plan["launcher"] == "torchrun" else None)
    server = Server(referee, listener, started + plan["limit_s"], plan.get("steps"))
    quiet(output)
    for rank in range(plan["world"] if plan["launcher"] == "torchrun" else 1):
        pid = os.fork()
        if pid == 0:
            listener.close()
            server.selector.close()
            play(plan, rank, address, stacks)
        server.children[pid] = rank
    outcome = server.serve()
    stuck = server.stacks(stacks) if outcome in ("stuck", "limit") else {}
    if outcome in ("diverged", "late"):
        snapshot = record(outcome, server, stuck)
        server.look_after()
        snapshot["after"] = {str(rank): [call.told() for call in seat.after] for rank, seat in referee.ranks().items()}
    else:
        snapshot = record(outcome, server, stuck)
    server.end()
    end_descendants()
    return {**snapshot, "files": files, "network": network, "seconds": round(time.monotonic() - started, 2)}


def quiet(target: int) -> None:
    """What the script prints goes to a file or nowhere."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


def play(plan: dict[str, Any], rank: int, address: str, stacks: Path) -> None:
    """Become a rank; never returns."""
    from whichrank.worker.rehearsal import children, client, prepare, script
    from whichrank.worker.rehearsal.rank import environment, live

    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.nice(2)  # the referee comes first: everybody waits for it
    client.Settings.address, client.Settings.roots = address, tuple(plan["roots"])
    children.Plan.stacks = stacks
    children.Plan.launched = plan["launcher"] == "torchrun"
    if children.Plan.launched:
        os.environ.update(environment(rank, plan["world"], plan["port"]))
        client.rank, client.rank_pid = rank, os.getpid()
        client.connect(rank)
    prepare.for_rank(plan, rank)
    live(lambda: script.run(plan["script"], plan["arguments"], plan.get("module")), stacks)


def end_descendants() -> None:
    """Processes that ranks left behind are our children now."""
    from whichrank.worker.rehearsal.processes import descendants

    for _ in range(20):
        left = descendants(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    # Imported by its name, so that what the ranks import is the same module.
    importlib.import_module("whichrank.worker.rehearsal.main").main()
