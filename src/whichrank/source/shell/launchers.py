"""Programs that start other programs on this host, and how each launcher is read."""

from __future__ import annotations

import re
from collections.abc import Callable

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell import remote
from whichrank.source.shell.passage import (
    SHELLS,
    TRANSPARENT,
    Passage,
    base,
    command_at,
    is_training,
    only,
    option_values,
    pairs_of,
)
from whichrank.source.shell.remote import files_of_prints, or_printed, prints_environment, prints_in
from whichrank.source.shell.words import Field


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
        words[index:], None if keeps_all else only(keeps), pairs_of(sets)[0], why=why,
        fix="Write sudo -E, or --preserve-env=NAME, or set it behind sudo: sudo env NAME=VALUE …",
    )  # fmt: skip


def _su(words: list[Field]) -> Passage | None:
    text = next(option_values(words, frozenset({"-c", "--command"})), None)
    if text is None:
        return None
    login = any(w.text in {"-", "-l", "--login"} for w in words)
    why = "a login shell of another user starts with a fresh environment"
    return Passage([text], only(()) if login else None, script=True, why=why, fix="Export it inside the command.")


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
        words[index:], only(()) if empty else None, pairs_of(sets)[0], tuple(unsets), why if empty else "", fix
    )


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
    sets, names = pairs_of(option_values(words[start:index], frozenset({"-e", "--env"})))
    rest = words[index + 1 :]
    files = list(option_values(words[start:index], frozenset({"--env-file"})))
    why = f"{base(words[0])} {words[verbs[0]].text} passes only variables given with -e into the container"
    passes = (lambda _name: True) if files else only(names)
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
    for field in option_values(options, frozenset({"--env"})):
        given += [field._replace(text=item) for item in re.split(r",(?=[A-Za-z_]\w*=)", field.text)]
    sets, _ = pairs_of(given)
    why = f"{base(words[0])} with --cleanenv or --containall does not pass the host's environment on"
    fix = "Export APPTAINERENV_NAME (or SINGULARITYENV_NAME), or give --env NAME=VALUE."
    return Passage(rest, only(()) if clean else None, sets, why=why if clean else "", fix=fix)


def _kubectl(words: list[Field]) -> Passage | None:
    if [w.text for w in words[1:3]] == ["set", "env"]:
        return Passage([], None, pairs_of(words[3:])[0])
    if not any(w.text in {"exec", "run"} for w in words):
        return None
    behind = next((i for i, w in enumerate(words) if w.text == "--"), None)
    sets, _ = pairs_of(option_values(words, frozenset({"--env"})))
    rest = words[behind + 1 :] if behind is not None else []
    why = "kubectl does not pass the environment into the container"
    return Passage(rest, only(()), sets, why=why, fix="Set it behind --: env NAME=VALUE …, or in the manifest.")


def _systemd_run(words: list[Field]) -> Passage:
    sets, names = pairs_of(option_values(words, frozenset({"-E", "--setenv"})))
    passes = None if any(w.text == "--scope" for w in words) else only(names)
    why = "systemd-run starts the service with the manager's environment"
    return Passage(command_at(words), passes, sets, why=why, fix="Add --setenv=NAME, or use --scope.", names=names)


PROGRAMS: dict[str, Callable[[list[Field]], Passage | None]] = {
    "sudo": _sudo, "doas": _sudo, "su": _su, "runuser": _su, "env": _env,
    "ssh": remote.ssh, "rsh": remote.ssh, "gcloud": remote.cloud_ssh, "pdsh": remote.pdsh,
    "clush": remote.pdsh, "pssh": remote.pdsh, "parallel-ssh": remote.pdsh, "dsh": remote.pdsh, "pbsdsh": remote.pdsh,
    "srun": remote.srun, "sbatch": remote.srun, "salloc": remote.srun, "qsub": remote.qsub,
    "mpirun": remote.mpirun, "mpiexec": remote.mpirun, "orterun": remote.mpirun, "mpiexec.hydra": remote.mpirun,
    "docker": _docker, "podman": _docker, "nerdctl": _docker, "nvidia-docker": _docker,
    "singularity": _singularity, "apptainer": _singularity, "kubectl": _kubectl, "oc": _kubectl,
    "systemd-run": _systemd_run, "ray": remote.ray, "deepspeed": remote.deepspeed,
}  # fmt: skip


_NAMING = frozenset({"-x", "-e", "--env", "-genv", "-genvlist", "--setenv", "-E"})
_NAME_NOTHING_ELSE = frozenset({"ssh", "sudo", "su", "docker", "podman", "deepspeed", "kubectl", "oc"})
"""Launchers that pass on what these options name alone, or nothing that an option could name."""


def passes_unknown(command: list[Field], rest: list[Field]) -> bool:
    """Options that only a run would tell: they may name any variable."""
    options = command[1 : len(command) - len(rest)] if rest else command[1:]
    for before, word in zip(command, options, strict=False):
        if not word.text.strip(UNKNOWN) and word.text and (before.text in _NAMING or not before.text.startswith("-")):
            return base(command[0]) not in _NAME_NOTHING_ELSE or before.text in _NAMING
    return False


def passage(command: list[Field]) -> Passage | None:
    """How this command starts another one; None where it starts none."""
    program = base(command[0])
    reader = PROGRAMS.get(program)
    if reader is not None:
        return reader(command)
    if program in SHELLS:
        return _shell(command)
    if program in TRANSPARENT:
        rest = command_at(command)
        if not rest and program == "exec" and len(command) > 1 and not command[1].known:
            rest = command[1:]
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


__all__ = ["Passage", "base", "files_of_prints", "is_training", "or_printed", "passage", "passes_unknown",
           "prints_environment", "prints_in"]  # fmt: skip
