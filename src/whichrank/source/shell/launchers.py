"""What programs that start other programs do with the environment: pass it on, add to it, or keep it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell.words import Field

Passes = Callable[[str], bool]


class Passage(NamedTuple):
    """How a command gets from one process to the next."""

    rest: list[Field]
    """The command that is started; empty where the program itself stands for the training."""
    passes: Passes | None = None
    """None: every exported variable goes through."""
    sets: tuple[tuple[str, Field], ...] = ()
    """NAME and VALUE given on the way."""
    unsets: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""
    remote: bool = False
    script: bool = False
    """The rest is shell text that another shell reads."""
    names: tuple[Field, ...] = ()
    """Variables that are passed on by name."""


_TRANSPARENT = frozenset({
    "exec", "nohup", "time", "nice", "ionice", "numactl", "taskset", "timeout", "stdbuf", "setsid", "chrt", "command",
    "builtin", "nsys", "ncu", "strace", "ltrace", "gdb", "conda", "mamba", "micromamba", "poetry", "uv", "pipenv",
    "pdm", "hatch", "unbuffer", "xargs", "dumb-init", "tini",
    "gosu", "su-exec", "flock", "script", "watch", "tmux", "screen",
    "bsub", "jsrun", "aprun", "horovodrun", "enroot", "catchsegv", "parallel", "perf", "rocprof",
    "doppler", "op", "chpst", "pixi", "module", "wait", "lrun", "flux", "ibrun", "whichrank", "dlprof", "py-spy",
})  # fmt: skip
_TRAINING = frozenset({
    "torchrun", "accelerate", "deepspeed", "lightning", "colossalai", "composer", "fairseq-train",
    "fairseq-hydra-train", "litgpt", "tune", "axolotl", "llamafactory-cli", "torchx",
    "vllm", "trl", "oumi", "mlx.launch", "nemo", "python",
    "python3", "ray", "fabric", "torchtune", "swift", "xtuner", "dask-cuda-worker", "verl",
})  # fmt: skip
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_TRAINS = r"\.(?:sh|py|bash)$|_perf(?:_mpi)?$|(?:^|[/_-])(?:train|pretrain|finetune|worker)"
_NOT_TRAINING = r"-m\s+(?:pip|venv|ensurepip|compileall|json|http|zipfile|build)\b|(?:^|/)setup\.py\b|^-V$"


def base(field: Field) -> str:
    return field.text.rsplit("/", 1)[-1]


def is_training(command: Sequence[Field]) -> bool:
    """The command (its program first) is, or most likely is, what runs the ranks."""
    program = base(command[0])
    if re.fullmatch(r"python[\d.]*", program) or program in _TRAINING:
        arguments = " ".join(field.text for field in command[1:4])
        if program == "ray":  # workers inherit what `ray start` has
            return len(command) > 1 and command[1].text == "start"
        inline = len(command) > 1 and command[1].text == "-c" and "torch" not in arguments and "train" not in arguments
        return not inline and not re.search(_NOT_TRAINING, arguments) and arguments not in {"--version", "-V"}
    if program in _SHELLS:
        return any(field.text.endswith((".sh", ".bash")) or not field.known for field in command[1:])
    if not command[0].known or command[0].text in {"$@", "$*"}:
        return True
    return bool(re.search(_TRAINS, program))


def is_known(program: str) -> bool:
    return program in _TRAINING or program in _SHELLS or program in PROGRAMS or program in _TRANSPARENT


# One-letter options of launchers whose next word is a value.
_WITH_VALUE = frozenset(
    {"-n", "-N", "-c", "-w", "-p", "-J", "-o", "-e", "-t", "-A", "-q", "-H", "-np", "-x", "-D", "-C"}
)


def command_at(words: Sequence[Field], start: int = 1) -> list[Field]:
    """The command among the arguments of a launcher: from the first word that names a program."""
    for index in range(start, len(words)):
        word = words[index]
        if word.text.startswith("-") or words[index - 1].text in _WITH_VALUE:
            continue
        program = base(word)
        if is_known(program) or re.fullmatch(r"python[\d.]*", program) or re.search(_TRAINS, program):
            return list(words[index:])
        if word.raw in {'"$@"', "$@", '"${@}"', "$*"}:
            return list(words[index:])
    return []


def _options(words: Sequence[Field], names: frozenset[str]) -> Iterator[Field]:
    """Values of an option, given as `--name value`, `--name=value` or (one letter) `-nvalue`."""
    for index, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if word.text in names and index + 1 < len(words):
            yield words[index + 1]
        elif equals and option in names and option.startswith("--"):
            yield word._replace(text=value, raw=word.raw.partition("=")[2])
        elif len(word.text) > 2 and word.text[:2] in names and word.text[1] != "-":
            yield word._replace(text=word.text[2:], raw=word.raw[2:])


def _pairs(fields: Iterator[Field] | Sequence[Field]) -> tuple[tuple[tuple[str, Field], ...], tuple[Field, ...]]:
    """NAME=VALUE given, and NAME alone."""
    sets: list[tuple[str, Field]] = []
    names: list[Field] = []
    for field in fields:
        name, equals, value = field.text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if equals:
            sets.append((name, field._replace(text=value)))
        else:
            names.append(field)
    return tuple(sets), tuple(names)


def _listed(names: Sequence[Field] | Sequence[str]) -> Passes:
    wanted = {name if isinstance(name, str) else name.text for name in names}
    return lambda name: name in wanted


def _sudo(words: list[Field]) -> Passage:
    index, keeps_all, keeps = 1, False, []
    takes_value = {"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group", "--host"}
    sets: list[Field] = []
    while index < len(words):
        text = words[index].text
        if text == "--":
            index += 1
            break
        if re.fullmatch(r"[A-Za-z_]\w*=.*", text, re.DOTALL):
            sets.append(words[index])
        elif text.startswith("--preserve-env="):
            keeps += text.partition("=")[2].split(",")
        elif text == "--preserve-env" or re.fullmatch(r"-[A-Za-z]*E[A-Za-z]*", text):
            keeps_all = True
        elif not text.startswith("-"):
            break
        index += 2 if text in takes_value else 1
    why = "sudo drops the environment unless -E or --preserve-env is given"
    return Passage(
        words[index:], None if keeps_all else _listed(keeps), _pairs(sets)[0], why=why,
        fix="Write sudo -E, or --preserve-env=NAME, or set it behind sudo: sudo env NAME=VALUE …",
    )  # fmt: skip


def _su(words: list[Field]) -> Passage | None:
    text = next(_options(words, frozenset({"-c", "--command"})), None)
    if text is None:
        return None
    login = any(w.text in {"-", "-l", "--login"} for w in words)
    why = "a login shell of another user starts with a fresh environment"
    return Passage([text], _listed(()) if login else None, script=True, why=why, fix="Export it inside the command.")


def _env(words: list[Field]) -> Passage:
    index, empty = 1, False
    unsets: list[str] = []
    sets: list[Field] = []
    while index < len(words):
        text = words[index].text
        if text in {"-i", "-", "--ignore-environment"}:
            empty = True
        elif text in {"-u", "--unset", "-C", "--chdir"}:
            index += 1
            if text in {"-u", "--unset"} and index < len(words):
                unsets.append(words[index].text)
        elif text.startswith("--unset="):
            unsets.append(text.partition("=")[2])
        elif re.match(r"[A-Za-z_]\w*=", text):
            sets.append(words[index])
        elif not text.startswith("-") and not (words[index].raw.startswith("$(") and index + 1 < len(words)):
            break  # a command whose name is printed by another one is rare; `env $(grep … .env)` is not
        index += 1
    why = "env -i starts the program with an empty environment"
    fix = "Name it behind env -i: env -i NAME=VALUE …"
    return Passage(
        words[index:], _listed(()) if empty else None, _pairs(sets)[0], tuple(unsets), why if empty else "", fix
    )


def _ssh(words: list[Field]) -> Passage:
    takes_value = set("BbcDEeFIiJLlmOopQRSWw")
    index = 1
    sent: list[str] = []
    while index < len(words) and words[index].text.startswith("-"):
        text = words[index].text
        sent += re.findall(r"SendEnv[= ]([\w*? ]+)", " ".join(w.text for w in words[index : index + 2]))
        index += 2 if len(text) == 2 and text[1] in takes_value else 1
    patterns = [re.compile(re.escape(p).replace(r"\*", ".*") + "$") for item in sent for p in item.split()]
    rest = words[index + 1 :]
    mentioned = {name for field in rest for name in re.findall(r"\$\{?(\w+)", field.raw)}
    return Passage(
        rest, lambda name: name in mentioned or any(p.match(name) for p in patterns), script=True, remote=True,
        why="ssh does not forward the environment",
        fix="Set it inside the remote command, or forward it: -o SendEnv=NAME (and AcceptEnv on the host).",
    )  # fmt: skip


def _cloud_ssh(words: list[Field]) -> Passage | None:
    """`gcloud compute ssh HOST --command TEXT`."""
    text = next(_options(words, frozenset({"--command"})), None)
    if text is None or all(word.text != "ssh" for word in words):
        return None
    return _ssh([words[0], words[0], text])


def _pdsh(words: list[Field]) -> Passage:
    rest = command_at(words)
    if not rest:
        index = 1
        while index < len(words) and words[index].text.startswith("-"):
            index += 2
        rest = words[index:]
    mentioned = {name for field in rest for name in re.findall(r"\$\{?(\w+)", field.raw)}
    why = f"{base(words[0])} does not forward the environment"
    fix = "Set it inside the remote command."
    return Passage(rest, lambda name: name in mentioned, script=True, remote=True, why=why, fix=fix)


def _srun(words: list[Field]) -> Passage:
    wrapped = next(_options(words, frozenset({"--wrap"})), None)
    return Passage([wrapped], script=True) if wrapped is not None else Passage(command_at(words))


_HYDRA = r"--?(?:genv\w*|env\w*|ppn|perhost|rr|bootstrap|iface|hosts|f|launcher|cpu-bind|line-buffer)(?:=|$)"
_HOSTS = frozenset(
    {"-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "--default-hostfile"}
)


def _mpirun(words: list[Field]) -> Passage:
    """Open MPI passes what -x names to other hosts; MPICH and Intel MPI pass everything."""
    rest = command_at(words)
    options = words[1 : len(words) - len(rest)] if rest else words[1:]
    hydra = any(re.match(_HYDRA, w.text) for w in options) or base(words[0]) == "mpiexec.hydra"
    several = any(w.text.partition("=")[0] in _HOSTS for w in options)
    local = all(
        re.fullmatch(r"(?:localhost|127\.0\.0\.1)(?::\d+)?", f.text)
        for f in _options(options, frozenset({"-H", "-host", "--host"}))
    )
    listed = [w for w in options if w.text.partition("=")[0] in _HOSTS - {"-H", "-host", "--host"}]
    given = list(_options(options, frozenset({"-x"})))
    for text in _options(options, frozenset({"--mca", "-mca"})):
        at = options.index(text) if text in options else -1
        if text.text == "mca_base_env_list" and at + 1 < len(options):
            given += [options[at + 1]._replace(text=item) for item in options[at + 1].text.split(";")]
    sets, names = _pairs(given)
    for index, word in enumerate(options):
        if word.text in {"-genv", "-env", "--genv"} and index + 2 < len(options):
            sets = (*sets, (options[index + 1].text, options[index + 2]._replace(line=word.line)))
        elif word.text in {"-genvlist", "-envlist"} and index + 1 < len(options):
            names = (*names, *(options[index + 1]._replace(text=t) for t in options[index + 1].text.split(",")))
    if hydra or not several or (local and not listed):
        passes = None
        if any(w.text in {"-genvnone", "-envnone", "-genvlist", "-envlist"} for w in options):
            passes = _listed(names)
        return Passage(rest, passes, sets, why="mpirun was told to pass a list only", names=names,
                       fix="Add it to the list.")  # fmt: skip
    why = "Open MPI's mpirun passes only variables named with -x (and OMPI_*) to other hosts"
    return Passage(rest, _listed(names), sets, why=why, fix="Add -x NAME to mpirun.", remote=True, names=names)


_DOCKER_VALUE = frozenset({
    "-v", "--volume", "-e", "--env", "--env-file", "--name", "--gpus", "--shm-size", "--ulimit", "-w", "--workdir",
    "--network", "--net", "-p", "--publish", "--ipc", "--device", "--user", "-u", "--mount", "--runtime", "-h",
    "--hostname", "--cap-add", "--security-opt", "--memory", "-m", "--cpus", "--entrypoint", "-l", "--label",
    "--add-host", "--pid", "--restart", "--platform", "--group-add", "--log-driver", "--log-opt", "--tmpfs", "--pull",
    "--cpuset-cpus", "--uts", "--userns", "--cgroupns", "--stop-timeout", "--init-path", "--memory-swap", "-n", "-f",
    "--context", "--pod-manifest", "-c", "--container",
})  # fmt: skip


def _docker(words: list[Field]) -> Passage | None:
    verbs = [i for i, w in enumerate(words) if w.text in {"run", "exec"}]
    if not verbs:
        return None
    index = verbs[0] + 1
    start = index
    while index < len(words) and words[index].text.startswith("-"):
        index += 2 if words[index].text in _DOCKER_VALUE else 1
    sets, names = _pairs(_options(words[start:index], frozenset({"-e", "--env"})))
    rest = words[index + 1 :]
    files = list(_options(words[start:index], frozenset({"--env-file"})))
    why = f"{base(words[0])} {words[verbs[0]].text} passes only variables given with -e into the container"
    passes = (lambda _name: True) if files else _listed(names)
    return Passage(rest, passes, sets, why=why, fix="Add -e NAME.", names=names)


def _singularity(words: list[Field]) -> Passage | None:
    verbs = [i for i, w in enumerate(words) if w.text in {"run", "exec", "shell"}]
    if not verbs:
        return None
    options = words[verbs[0] + 1 :]
    rest = command_at(words, verbs[0] + 1)
    options = options[: len(options) - len(rest)] if rest else options
    clean = any(w.text in {"--cleanenv", "--containall"} or re.fullmatch(r"-[a-z]*[eC][a-z]*", w.text) for w in options)
    given: list[Field] = []
    for field in _options(options, frozenset({"--env"})):
        given += [field._replace(text=item) for item in re.split(r",(?=[A-Za-z_]\w*=)", field.text)]
    sets, _ = _pairs(given)
    why = f"{base(words[0])} with --cleanenv or --containall does not pass the host's environment on"
    fix = "Export APPTAINERENV_NAME (or SINGULARITYENV_NAME), or give --env NAME=VALUE."
    return Passage(rest, _listed(()) if clean else None, sets, why=why if clean else "", fix=fix)


def _kubectl(words: list[Field]) -> Passage | None:
    if [w.text for w in words[1:3]] == ["set", "env"]:
        return Passage([], None, _pairs(words[3:])[0])
    if not any(w.text in {"exec", "run"} for w in words):
        return None
    behind = next((i for i, w in enumerate(words) if w.text == "--"), None)
    sets, _ = _pairs(_options(words, frozenset({"--env"})))
    rest = words[behind + 1 :] if behind is not None else []
    why = "kubectl does not pass the environment into the container"
    return Passage(rest, _listed(()), sets, why=why, fix="Set it behind --: env NAME=VALUE …, or in the manifest.")


def _systemd_run(words: list[Field]) -> Passage:
    sets, names = _pairs(_options(words, frozenset({"-E", "--setenv"})))
    passes = None if any(w.text == "--scope" for w in words) else _listed(names)
    why = "systemd-run starts the service with the manager's environment"
    return Passage(command_at(words), passes, sets, why=why, fix="Add --setenv=NAME, or use --scope.", names=names)


def _ray(words: list[Field]) -> Passage | None:
    if [w.text for w in words[1:3]] != ["job", "submit"]:
        return None
    behind = next((i for i, w in enumerate(words) if w.text == "--"), None)
    rest = words[behind + 1 :] if behind is not None else command_at(words, 3)
    given = list(_options(words, frozenset({"--runtime-env-json"})))
    sets = tuple(
        (match[1], field._replace(text=match[2]))
        for field in given
        for match in re.finditer(r'"([A-Z][A-Z0-9_]*)"\s*:\s*"([^"\n]*)"', field.text)
    )
    passes = (lambda _name: True) if list(_options(words, frozenset({"--runtime-env"}))) else _listed(())
    why = "ray job submit runs the job on the cluster, which does not see this shell's environment"
    return Passage(rest, passes, sets, why=why, fix="Put it into env_vars of the runtime environment.", remote=True)


def _deepspeed(words: list[Field]) -> Passage | None:
    """Over several hosts DeepSpeed passes on what starts with these words, and what .deepspeed_env holds."""
    several = any(w.text.partition("=")[0] in {"--hostfile", "-H", "--num_nodes", "--master_addr"} for w in words)
    if not several or any(w.text in {"--num_nodes=1", "--no_ssh", "--force_multi"} for w in words):
        return None
    prefixes = ("NCCL", "MLFLOW", "PYTHON", "MV2", "UCX")  # EXPORT_ENVS in deepspeed/launcher/runner.py
    why = "the deepspeed launcher passes only NCCL*, PYTHON*, MV2*, UCX* and MLFLOW* to other hosts"
    fix = "Put NAME=VALUE into ~/.deepspeed_env."
    return Passage([], lambda name: name.startswith(prefixes), why=why, fix=fix, remote=True)


def _qsub(words: list[Field]) -> Passage:
    passes = None if any(w.text == "-V" for w in words) else _listed(())
    given = [
        field._replace(text=item)
        for field in _options(words, frozenset({"-v"}))
        for item in re.split(r",(?=[A-Za-z_]\w*(?:=|,|$))", field.text)
    ]
    sets, names = _pairs(given)
    if passes is not None:
        passes = _listed(names)
    why = "qsub does not pass the environment to the job"
    return Passage(words[-1:], passes, sets, why=why, fix="Add -V, or -v NAME.", names=names)


PROGRAMS: dict[str, Callable[[list[Field]], Passage | None]] = {
    "sudo": _sudo, "doas": _sudo, "su": _su, "runuser": _su, "env": _env,
    "ssh": _ssh, "rsh": _ssh, "gcloud": _cloud_ssh, "pdsh": _pdsh, "clush": _pdsh, "pssh": _pdsh,
    "parallel-ssh": _pdsh, "dsh": _pdsh, "pbsdsh": _pdsh,
    "srun": _srun, "sbatch": _srun, "salloc": _srun, "qsub": _qsub,
    "mpirun": _mpirun, "mpiexec": _mpirun, "orterun": _mpirun, "mpiexec.hydra": _mpirun,
    "docker": _docker, "podman": _docker, "nerdctl": _docker, "nvidia-docker": _docker,
    "singularity": _singularity, "apptainer": _singularity, "kubectl": _kubectl, "oc": _kubectl,
    "systemd-run": _systemd_run, "ray": _ray, "deepspeed": _deepspeed,
}  # fmt: skip


_NAMING = frozenset({"-x", "-e", "--env", "-genv", "-genvlist", "--setenv", "-E"})


def passes_unknown(command: list[Field], rest: list[Field]) -> bool:
    """Options that only a run would tell: they may name any variable."""
    options = command[1 : len(command) - len(rest)] if rest else command[1:]
    for before, word in zip(command, options, strict=False):
        if not word.text.strip(UNKNOWN) and word.text and (before.text in _NAMING or not before.text.startswith("-")):
            return base(command[0]) not in {"ssh", "sudo", "su", "docker", "podman"} or before.text in _NAMING
    return False


_PRINTS_ENVIRONMENT = r"(?:\$\(|`)\s*((?:printenv|env|export -p|declare -[px]+|typeset -[px]+|compgen -[ev])\b[^`]*)"


def prints_environment(raw: str) -> str:
    """The command in a word that prints all variables: `$(env | grep ^NCCL_)`."""
    match = re.search(_PRINTS_ENVIRONMENT, raw)
    return match[1] if match else ""


def or_printed(passes: Passes, rest: Sequence[Field], dumps: dict[str, str]) -> Passes | None:
    """What gets through where a remote command begins with a print of this environment; None for everything."""
    text, raw = " ".join(field.text for field in rest), " ".join(field.raw for field in rest)
    if re.search(rf"(?:^|[\s;])(?:export|env)\s+{UNKNOWN}|{UNKNOWN}=", text):
        return None
    prints = [command for name, command in dumps.items() if re.search(rf"\$\{{?{name}\b", raw)]
    prints += [direct] if (direct := prints_environment(raw)) else []
    if not prints:
        return passes
    kept = [word for command in prints for word in re.findall(r"[A-Z][A-Z0-9]*(?=[_|)*'\"\s])", command)]
    return (lambda name: passes(name) or name.startswith(tuple(kept))) if kept else None


def passage(command: list[Field]) -> Passage | None:
    """How this command starts another one; None where it starts none."""
    program = base(command[0])
    reader = PROGRAMS.get(program)
    if reader is not None:
        return reader(command)
    if program in _SHELLS:
        return _shell(command)
    if program in _TRANSPARENT:
        rest = command_at(command)
        if rest:
            return Passage(rest)
        quoted = [w for w in command[1:] if re.search(r"\s", w.text) and re.match(r"\s*[\w./]+[ =]", w.text)]
        return Passage(quoted[-1:], script=True) if quoted and program in {"tmux", "screen", "bsub"} else None
    return None


def _shell(command: list[Field]) -> Passage | None:
    for index, word in enumerate(command[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word.text) and index + 1 < len(command):
            return Passage([command[index + 1]], script=True)
        if not word.text.startswith(("-", "+")):
            return None
    return None
