"""Launchers that start commands on other hosts: ssh and its kin, schedulers, MPI, Ray, DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from whichrank.records.settings import UNKNOWN
from whichrank.source.places import foreign_options
from whichrank.source.shell.passage import Passage, Passes, base, command_at, only, option_values, pairs_of
from whichrank.source.shell.words import Field


def ssh(words: list[Field]) -> Passage:
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


def cloud_ssh(words: list[Field]) -> Passage | None:
    """`gcloud compute ssh HOST --command TEXT`."""
    text = next(option_values(words, frozenset({"--command"})), None)
    if text is None or all(word.text != "ssh" for word in words):
        return None
    return ssh([words[0], words[0], text])


def pdsh(words: list[Field]) -> Passage:
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


def srun(words: list[Field]) -> Passage:
    wrapped = next(option_values(words, frozenset({"--wrap"})), None)
    return Passage([wrapped], script=True) if wrapped is not None else Passage(command_at(words))


_HYDRA = r"--?(?:genv\w*|env\w*|ppn|perhost|rr|bootstrap|iface|hosts|f|launcher|cpu-bind|line-buffer)(?:=|$)"


_HOSTS = frozenset(
    {"-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "--default-hostfile"}
)


def mpirun(words: list[Field]) -> Passage:
    """Open MPI passes what -x names to other hosts; MPICH and Intel MPI pass everything."""
    rest = command_at(words)
    options = words[1 : len(words) - len(rest)] if rest else words[1:]
    hydra = any(re.match(_HYDRA, w.text) for w in options) or base(words[0]) == "mpiexec.hydra"
    hydra = hydra and foreign_options.library(base(words[0]), options) != foreign_options.OPEN_MPI
    several = any(w.text.partition("=")[0] in _HOSTS for w in options)
    local = all(
        re.fullmatch(r"(?:localhost|127\.0\.0\.1)(?::\d+)?", f.text)
        for f in option_values(options, frozenset({"-H", "-host", "--host"}))
    )
    listed = [w for w in options if w.text.partition("=")[0] in _HOSTS - {"-H", "-host", "--host"}]
    given = list(option_values(options, frozenset({"-x"})))
    for text in option_values(options, frozenset({"--mca", "-mca"})):
        at = options.index(text) if text in options else -1
        if text.text == "mca_base_env_list" and at + 1 < len(options):
            given += [options[at + 1]._replace(text=item) for item in options[at + 1].text.split(";")]
    sets, names = pairs_of(given)
    for index, word in enumerate(options):
        if hydra and word.text in {"-genv", "-env", "--genv"} and index + 2 < len(options):
            sets = (*sets, (options[index + 1].text, options[index + 2]._replace(line=word.line)))
        elif word.text in {"-genvlist", "-envlist"} and index + 1 < len(options):
            names = (*names, *(options[index + 1]._replace(text=t) for t in options[index + 1].text.split(",")))
    if hydra or not several or (local and not listed):
        passes = None
        if any(w.text in {"-genvnone", "-envnone", "-genvlist", "-envlist"} for w in options):
            passes = only(names)
        return Passage(rest, passes, sets, why="mpirun was told to pass a list only", names=names,
                       fix="Add it to the list.")  # fmt: skip
    return Passage(rest, only(names), sets, why=_BY_NAME, fix=_ADD_NAME, remote=True, names=names)


_BY_NAME = "Open MPI's mpirun passes only variables named with -x (and OMPI_*) to other hosts"
_NOT_LISTED = (
    "mpirun's -x does not name it, and Open MPI passes it to other hosts only where it was built for this scheduler"
)
_ADD_NAME = "Add -x NAME to mpirun."


def of_a_job(words: Sequence[Field], found: Passage) -> Passage:
    """mpirun with the hosts of PBS or LSF: a list of -x that names settings of NCCL is meant to be whole."""
    listed = any(word.text == "-x" for word in words) and any(f.text.startswith("NCCL_") for f in found.names)
    return found._replace(passes=only(found.names), why=_NOT_LISTED, fix=_ADD_NAME, remote=True) if listed else found


def ray(words: list[Field]) -> Passage | None:
    if [w.text for w in words[1:3]] != ["job", "submit"]:
        return None
    behind = next((i for i, w in enumerate(words) if w.text == "--"), None)
    rest = words[behind + 1 :] if behind is not None else command_at(words, 3)
    given = list(option_values(words, frozenset({"--runtime-env-json"})))
    sets = tuple(
        (match[1], field._replace(text=match[2]))
        for field in given
        for match in re.finditer(r'"([A-Z][A-Z0-9_]*)"\s*:\s*"([^"\n]*)"', field.text)
    )
    passes = (lambda _name: True) if list(option_values(words, frozenset({"--runtime-env"}))) else only(())
    why = "ray job submit runs the job on the cluster, which does not see this shell's environment"
    return Passage(rest, passes, sets, why=why, fix="Put it into env_vars of the runtime environment.", remote=True)


def deepspeed(words: list[Field]) -> Passage | None:
    """Over several hosts DeepSpeed passes on what starts with these words, and what .deepspeed_env holds."""
    several = any(w.text.partition("=")[0] in {"--hostfile", "-H", "--num_nodes", "--master_addr"} for w in words)
    one = any(field.text == "1" for field in option_values(words, frozenset({"--num_nodes"})))
    if not several or one or any(w.text in {"--no_ssh", "--force_multi"} for w in words):
        return None
    prefixes = ("NCCL", "MLFLOW", "PYTHON", "MV2", "UCX")  # EXPORT_ENVS in deepspeed/launcher/runner.py
    why = "the deepspeed launcher passes only NCCL*, PYTHON*, MV2*, UCX* and MLFLOW* to other hosts"
    fix = "Put NAME=VALUE into ~/.deepspeed_env."
    return Passage([], lambda name: name.startswith(prefixes), why=why, fix=fix, remote=True)


def qsub(words: list[Field]) -> Passage:
    passes = None if any(w.text == "-V" for w in words) else only(())
    given = [
        field._replace(text=item)
        for field in option_values(words, frozenset({"-v"}))
        for item in re.split(r",(?=[A-Za-z_]\w*(?:=|,|$))", field.text)
    ]
    sets, names = pairs_of(given)
    if passes is not None:
        passes = only(names)
    why = "qsub does not pass the environment to the job"
    return Passage(words[-1:], passes, sets, why=why, fix="Add -V, or -v NAME.", names=names)


_PRINTS_ENVIRONMENT = (
    r"(?:\$\(|`)\s*((?:printenv|env|export -p|(?:declare|typeset) -[px]+(?!\s+[\"$A-Z])|compgen -[ev])\b[^`]*)"
)


def prints_environment(raw: str) -> str:
    """The command in a word that prints all variables: `$(env | grep ^NCCL_)`."""
    match = re.search(_PRINTS_ENVIRONMENT, raw)
    return match[1] if match else ""


def prints_in(raw: str, dumps: Mapping[str, str]) -> list[str]:
    """The commands of this kind behind the variables and functions in a word."""
    names = set(re.findall(r"\$[{(]?\s{0,8}(\w{1,80})", raw)) if dumps else set()
    return [command for name, command in dumps.items() if name in names]


_INTO_FILE = re.compile(
    r"(?:^|[\s;(])((?:printenv|env|export -p|declare -p?x?|typeset -p?x?)\b[^>;&\n]{0,300})"
    r">{1,2}\s{0,4}[\"']?([^\s\"';&)]{1,200})"
)
_SOURCES = re.compile(r"(?:^|[\s;&\"'])(?:source|\.)\s{1,4}[\"']?([^\s\"';&)]{1,200})")
_MOST_LINES = 5_000


def files_of_prints(lines: Sequence[str]) -> dict[str, str]:
    """Files that the output of such a command goes to, by name: `env | grep ^NCCL_ > job.env`."""
    rows = [_INTO_FILE.search(line[:2000]) for line in lines[:_MOST_LINES] if ">" in line]
    return {row[2].rsplit("/", 1)[-1]: row[1] for row in rows if row}


def or_printed(
    passes: Passes, rest: Sequence[Field], dumps: Mapping[str, str], files: Mapping[str, str]
) -> Passes | None:
    """What gets through where a remote command begins with a print of this environment; None for everything."""
    text, raw = " ".join(field.text for field in rest), " ".join(field.raw for field in rest)
    if re.search(rf"(?:^|[\s;])(?:export|env)\s+{UNKNOWN}|{UNKNOWN}=", text):
        return None
    sourced = {path.rsplit("/", 1)[-1] for path in _SOURCES.findall(raw or text)} if files else set()
    prints = [*prints_in(raw, dumps), *(command for name, command in files.items() if name in sourced)]
    prints += [direct] if (direct := prints_environment(raw)) else []
    if not prints:
        return passes
    kept = [word for command in prints for word in re.findall(r"[A-Z][A-Z0-9]*(?=[_|)*'\"\s])", command)]
    return (lambda name: passes(name) or name.startswith(tuple(kept))) if kept else None
