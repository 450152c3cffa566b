"""What a launcher in front of the training says of its size: srun, mpirun, jsrun, horovodrun, docker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from whichrank.records.settings import UNKNOWN
from whichrank.source import memory
from whichrank.source.shell.allocation import Allocation, Count
from whichrank.source.shell.state import Written
from whichrank.source.shell.words import Field

_QUOTES = "\"'"
_MPI = frozenset({"mpirun", "mpiexec", "orterun", "mpiexec.hydra", "horovodrun"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "nvidia-docker"})
_ON_MANY_HOSTS = frozenset({"srun", "jsrun", "pdsh", "clush", "pssh", "parallel-ssh", "dsh", "pbsdsh"}) | _MPI
_RANKS = frozenset({"-np", "-n", "--np", "--n", "-c"})
_PER_HOST = frozenset({"-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost", "--perhost", "--ntasks-per-node"})
_HOSTS = frozenset({"-H", "-host", "--host", "-hosts", "--hosts"})
_HOST_FILES = frozenset({"-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f", "--default-hostfile"})


def option(words: Sequence[Field], names: frozenset[str]) -> Field | None:
    """The value of an option with its line; the text of the field stays the value."""
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name not in names:
            continue
        if equals:
            return word._replace(text=value)
        if index + 1 < len(words):
            return words[index + 1]
    return None


def number(field: Field | None, said: str) -> Count | None:
    match = re.fullmatch(r"\s*([1-9]\d{0,5})\s*", field.text) if field is not None else None
    return Count(int(match[1]), field.line, said) if match and field is not None else None


def within(program: str, words: Sequence[Field], size: Allocation, files: Mapping[str, Written]) -> Allocation:
    """The size of the step that this launcher (with its options) makes of the job."""
    if program == "srun" or is_flux_run(words):
        return _srun([field.text for field in words], words[0].line, size)
    if program in _MPI:
        return _mpi(words, size, files)
    if program == "jsrun":
        return _jsrun(words, size)
    if program in _CONTAINERS:
        return _container(words, size)
    return size


def has_own_network(program: str, words: Sequence[Field]) -> bool:
    """A container that does not share the ports of its host."""
    if program not in _CONTAINERS | {"kubectl", "oc"}:
        return False
    network = option(words, frozenset({"--network", "--net"}))
    return network is None or network.text != "host"


def on_many_hosts(program: str, words: Sequence[Field]) -> bool:
    """It starts the same command on every host of a list or of the job."""
    if program == "blaunch":
        return any(word.text in {"-z", "-u"} for word in words)
    return program in _ON_MANY_HOSTS or is_flux_run(words) or any(word.text == "--worker=all" for word in words)


def one_host(program: str, words: Sequence[Field]) -> Field | None:
    """The host or pod that a command with these options goes to."""
    if program in {"ssh", "rsh"} or (program == "blaunch" and not on_many_hosts(program, words)):
        return words[-1]
    if program in {"kubectl", "oc"} and "exec" in (verbs := [word.text for word in words]):
        behind = list(words[verbs.index("exec") + 1 :])
        named = [w for before, w in pairwise([words[0], *behind]) if before.text not in {"-n", "-c", "--namespace"}]
        return next((word for word in named if not word.text.startswith("-")), None)
    return None


def is_flux_run(words: Sequence[Field]) -> bool:
    """`flux run` and `flux submit` take the options of srun."""
    return len(words) > 1 and words[0].text.endswith("flux") and words[1].text in {"run", "submit"}


def _srun(words: list[str], line: int, job: Allocation) -> Allocation:
    """A step's own options, else those of the job; a step for chosen hosts has no size."""
    size = job._replace(started=None).slurm(words, line)
    places = job.started
    if places is None and job.nodes is not None and job.tasks is not None:
        places = job.tasks.times(job.nodes.number)
    size = size._replace(slots=places._replace(exact=False) if places is not None else None)
    if size.started is not None:
        size = size._replace(tasks=None)
    elif size.tasks is None and size.nodes == job.nodes:
        size = size._replace(started=job.started)
    one = size.nodes is not None and size.nodes.number == 1 and job.nodes != size.nodes
    if one or any(re.match(r"-[wxr]|--(?:nodelist|exclude|relative|het-group)(?:=|$)", word) for word in words):
        size = size._replace(nodes=None, started=None)
    return size


def _mpi(words: Sequence[Field], size: Allocation, files: Mapping[str, Written]) -> Allocation:
    started, per_host = number(option(words, _RANKS), "-np"), number(option(words, _PER_HOST), "-N")
    mapped = re.search(r"ppr:(\d{1,4}):node", " ".join(field.text for field in words))
    if mapped and per_host is None and int(mapped[1]):
        per_host = Count(int(mapped[1]), words[0].line, mapped.group())
    nodes, slots = size.nodes, size.slots
    hosts, file = option(words, _HOSTS), option(words, _HOST_FILES)
    if hosts is not None and hosts.known:
        places = [item.partition(":")[2] or "1" for item in hosts.text.split(",") if item]
        nodes = Count(len(places), hosts.line, f"{hosts.text[:60]}")
        if all(place.isdecimal() for place in places) and ":" in hosts.text:
            slots = Count(sum(map(int, places)), hosts.line, hosts.text[:60])
    elif file is not None and (found := host_file(file, files)) is not None:
        nodes, slots = found
    loose = any(re.search(r"oversubscribe", field.text) for field in words)
    if per_host is None and started is not None and nodes is not None and slots is not None:
        even = slots.number % nodes.number == 0 and started.number == slots.number
        per_host = started._replace(number=started.number // nodes.number) if even else None
    return size._replace(
        started=started, tasks=per_host, nodes=nodes, slots=None if loose else slots, per_task=None, total=None
    )


def written_before(file: Field, files: Mapping[str, Written]) -> Written | None:
    """The file that the script wrote under this name, also where both spell it with a variable (`ds_$JOB_ID.json`)."""
    spelled = file.raw.partition("=")[2] if file.raw.startswith("--") else file.raw
    names = (name.strip("\"'").rsplit("/", 1)[-1] for name in (file.text, spelled))
    return next((files[name] for name in names if name in files), None)


def host_file(file: Field, files: Mapping[str, Written]) -> tuple[Count, Count | None] | None:
    """Hosts and slots of a hostfile that the script itself writes."""
    written = written_before(file, files)
    rows = [row.split("#")[0].split() for row in written.text.split("\n")] if written else []
    rows = [row for row in rows if row]
    if not rows or any("$" in word or "\0" in word for row in rows for word in row):
        return None
    spelled = file.raw if UNKNOWN in file.text else file.text.rsplit("/", 1)[-1]
    said = f"hostfile {spelled.strip(_QUOTES)}"
    slots = [re.search(r"(?:slots=|:)(\d{1,4})", " ".join(row)) for row in rows]
    total = sum(int(found[1]) for found in slots if found)
    counted = Count(total, file.line, said, exact=False) if total and all(slots) else None
    return Count(len(rows), file.line, said, exact=False), counted


def _jsrun(words: Sequence[Field], size: Allocation) -> Allocation:
    """Resource sets: how many, tasks in each, how many on a host."""
    sets = number(option(words, frozenset({"-n", "--nrs"})), "--nrs")
    tasks = number(option(words, frozenset({"-a", "--tasks_per_rs"})), "--tasks_per_rs")
    on_host = number(option(words, frozenset({"-r", "--rs_per_host"})), "--rs_per_host")
    gpus = number(option(words, frozenset({"-g", "--gpu_per_rs"})), "--gpu_per_rs")
    each = tasks.number if tasks is not None else 1
    if on_host is None and sets is not None and size.nodes is not None and sets.number == size.nodes.number:
        on_host = sets._replace(number=1)
    return size._replace(
        started=sets.times(each) if sets is not None else None,
        tasks=on_host.times(each) if on_host is not None else None,
        gpus=gpus.times(on_host.number) if gpus is not None and on_host is not None else None,
        slots=None,
    )


def _limits(words: Sequence[Field]) -> dict[str, Count | None]:
    """`--shm-size 64m` (of no effect with --ipc=host) and `--ulimit memlock=65536`."""
    shared, ipc = option(words, frozenset({"--shm-size"})), option(words, frozenset({"--ipc"}))
    found: dict[str, Count | None] = {"shared": None, "locked": None}
    if shared is not None and (ipc is None or ipc.text == "private") and (number := memory.size(shared.text)):
        found["shared"] = Count(number, shared.line, "--shm-size")
    mounted = any(memory.SHARED_MEMORY in word.text for word in words)
    if shared is None and ipc is None and not mounted and not any(not word.known for word in words[:40]):
        found["shared"] = Count(memory.CONTAINER_DEFAULT, words[0].line, "docker's default", exact=False)
    for index, word in enumerate(words):
        limit = re.fullmatch(r"(?:--ulimit=)?memlock=(\d+)(?::\d+)?", word.text)
        if limit and (words[index - 1].text == "--ulimit" or word.text.startswith("--")):
            found["locked"] = Count(int(limit[1]), word.line, "--ulimit memlock")
    return found


def _container(words: Sequence[Field], size: Allocation) -> Allocation:
    """`--gpus 2`, `--gpus '"device=0,1"'`; `all` says nothing."""
    size = size._replace(**_limits(words))
    given = option(words, frozenset({"--gpus"}))
    if given is None:
        return size
    text = given.text.strip("\"'")
    if text.isdecimal() and int(text[:4]) > 0:
        return size._replace(gpus=Count(int(text[:4]), given.line, f"--gpus {text}"))
    if match := re.match(r"device=([\w,.-]+)$", text):
        return size._replace(gpus=Count(len(match[1].split(",")), given.line, f"--gpus {text}"))
    return size
