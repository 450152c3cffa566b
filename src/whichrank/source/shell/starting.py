"""Programs that a script starts: launchers that start others, and the training itself."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from whichrank.facts.variables.releases import release_in
from whichrank.records.settings import UNKNOWN, Clash, Lost
from whichrank.source.places import container_interfaces, foreign_options, mpi_options, ray_jobs, read_elsewhere
from whichrank.source.shell import (
    batch,
    directives,
    documents,
    fitting,
    held,
    launchers,
    remote,
    step_size,
    texts,
)
from whichrank.source.shell.passage import SHELLS, option_values
from whichrank.source.shell.state import CONTAINER_PREFIXES, NESTING_LIMIT, Cut, Early, Environment
from whichrank.source.shell.syntax import parse
from whichrank.source.shell.values import rounds
from whichrank.source.shell.words import Field, Value, keep_unknown, pieces

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.tokens import Redirect

_MPI = frozenset({"mpirun", "mpiexec", "orterun"})
_ONE_HOST = frozenset({"-w", "--nodelist"})
_SLURM = frozenset({"srun", "sbatch", "salloc"})
_SIZED = frozenset({"srun", "flux", "jsrun", "mpirun", "mpiexec", "orterun", "mpiexec.hydra", "horovodrun"})
"""Launchers that start as many copies as they are told, which may all be on one host."""


def start(shell: Interpreter, command: list[Field], redirects: list[Redirect], env: Environment, *, sure: bool) -> None:
    """A program: a launcher that starts another one, the training itself, or something else."""
    shell.nesting += 1
    program = launchers.base(command[0])
    if shell.nesting <= NESTING_LIMIT * 2:
        pin(shell, command)
        found = launchers.passage(command)
        if found is None or (found == launchers.Passage([]) and not redirects and program not in _SLURM):
            last(shell, command, redirects, env, sure=sure)
        else:
            onward(shell, command, found, redirects, env, sure=sure)
    shell.nesting -= 1


def last(shell: Interpreter, command: list[Field], redirects: list[Redirect], env: Environment, *, sure: bool) -> None:
    program = launchers.base(command[0])
    if not command[0].known or command[0].raw in {'"$1"', "$1"}:
        shell.dynamic = True
    body = next((r for r in redirects if r.body), None)
    if body is None and _written_before(shell, command, env, sure=sure):
        return
    if body is not None and (program in {"bash", "sh", "zsh", "sbatch", "qsub", "bsub"} or not program):
        texts.inner(shell, documents.unescaped(body), body.body_line, env.through(None, None), sure=sure)
    elif body is not None and program.startswith("python"):
        texts.python_program(shell, body)
    elif body is not None:
        texts.document(shell, body, redirects, env, program=" ".join(f.text for f in command[:3]))
    elif launchers.is_training(command):
        script = next((at for at, word in enumerate(command) if word.text.endswith(".py")), 0)
        for lost in foreign_options.check(shell, program, command, command[:script]):
            shell.lost(lost)
        arrive(shell, env)
        fitting.check(shell, command, env)


def _written_before(shell: Interpreter, command: list[Field], env: Environment, *, sure: bool) -> bool:
    """A script that this one wrote by a here-document: it is followed where it is run, with what it gets there."""
    words = command
    if launchers.base(command[0]) in SHELLS:
        words = [word for word in command[1:] if not word.text.startswith("-")]
    found = shell.scripts.get(launchers.base(words[0])) if words else None
    if found is None:
        return False
    before, early = len(shell.launches), shell.early
    if shell.on_every_host:
        shell.early += shell.early_files.get(launchers.base(words[0]), ())
    text, line = found
    there, shell.expanded_there = shell.expanded_there, shell.away
    inner = env.through(None, None)
    shell.call(f"script {line}", words, inner, sure=sure, body=parse(text, line).body)
    shell.expanded_there, shell.early = there, early
    return len(shell.launches) > before


def onward(
    shell: Interpreter,
    command: list[Field],
    found: launchers.Passage,
    redirects: list[Redirect],
    env: Environment,
    *,
    sure: bool,
) -> None:
    """A launcher: the environment behind it, and the command that it starts there."""
    program = launchers.base(command[0])
    inner = beyond(shell, command, found, env)
    found = _looked_at(shell, command, found, inner)
    if program == "deepspeed":
        arrive(shell, inner)
        fitting.check(shell, command, inner)
        return
    for name in found.unsets:
        inner.variables.pop(name, None)
    for name, given in found.sets:
        shell.assign(name, Value(given.text, given.fixed), given.line, inner, sure=sure, exported=True)
    for given in found.names:
        if given.text in env.variables and not env.variables[given.text].exported:
            inner.missing.pop(given.text, None)
    kept, there, early = shell.allocation, shell.host, shell.early
    options = command[: len(command) - len(found.rest)]
    every = step_size.on_many_hosts(program, options)
    if (there_is := step_size.one_host(program, options)) is not None and (found.rest or redirects):
        shell.host = there_is.text
        every = there_is.text == "{}" or shell.of_a_round(there_is.raw)
    fans_out, shell.fans_out = shell.fans_out, shell.fans_out or (every and program not in _SIZED)
    shell.allocation = step_size.within(program, options, shell.allocation, shell.files)
    if every and not shell.on_every_host:
        shell.early = _filled_in_early(shell, found, inner)
        body = next((each for each in redirects if each.body), None)
        if body is not None:
            shell.early += held.early_in(body.body, body.body_line, shell.per_task, literal=body.literal)
    if not found.script:
        found = found._replace(rest=[_filled(shell, field, env) for field in found.rest])
    indoors = step_size.has_own_network(program, options)
    shell.on_every_host, shell.indoors = shell.on_every_host + every, shell.indoors + indoors
    before = len(shell.out.launches)
    behind(shell, command, found, redirects, env, inner, sure=sure)
    chosen = there_is or (step_size.option(options, _ONE_HOST) if program == "srun" else None)
    if chosen is not None:
        rounds.check(shell, chosen, found.rest, redirects, shell.out.launches[before:])
    shell.on_every_host, shell.indoors = shell.on_every_host - every, shell.indoors - indoors
    shell.allocation, shell.host, shell.early, shell.fans_out = kept, there, early, fans_out
    if program == "exec" and sure and found.rest:
        env.ended = True


def _looked_at(
    shell: Interpreter, command: list[Field], found: launchers.Passage, inner: Environment
) -> launchers.Passage:
    """What some launchers make of what they are given."""
    program, options = launchers.base(command[0]), command[: len(command) - len(found.rest)]
    more = mpi_options.listed(shell, options) if program in _MPI else ()
    for lost in (*foreign_options.check(shell, program, command, options), *more):
        shell.lost(lost)
    if program == "ray":
        return _of_ray(shell, command, found)
    if program in _MPI:
        for clash in mpi_options.check(shell, options):
            shell.clash(clash)
    if program in {"docker", "podman", "nerdctl"} and found.rest:
        given = {name: Value(field.text, line=field.line) for name, field in found.sets}
        for clash in container_interfaces.of_docker_run(shell, options, given, inner):
            shell.clash(clash)
    return found


def _of_ray(shell: Interpreter, command: list[Field], found: launchers.Passage) -> launchers.Passage:
    """`ray job submit --runtime-env-json … -- NAME=VALUE python …`; returns it without what is in front of python."""
    given = {name for name, _ in found.sets}
    for field in ray_jobs.of_driver(found.rest):
        if field.text not in given:
            shell.lost(Lost(field.text, shell.ref(field.line), ray_jobs.DRIVER, ray_jobs.IN_ENV_VARS))
    for field in option_values(command, frozenset({"--runtime-env-json"})):
        variables = field.text.partition('"env_vars"')[2].partition("}")[0]
        for match in _BARE.finditer(variables[:20_000]):
            why = "Ray takes strings only in env_vars, and refuses the job"
            shell.lost(Lost(match[1], shell.ref(field.line), why, f'Quote it: "{match[1]}": "{match[2]}".', "error"))
    program = next((at for at, word in enumerate(found.rest) if "=" not in word.text and word.text != "env"), 0)
    return found._replace(rest=found.rest[program:])


_BARE = re.compile(r'"([A-Za-z_]\w{0,80})"\s{0,8}:\s{0,8}(-?\d[\d.]{0,20}|true|false)\b')


def beyond(shell: Interpreter, command: list[Field], found: launchers.Passage, env: Environment) -> Environment:
    """What of this environment the launcher passes on."""
    program = launchers.base(command[0])
    if program in _SLURM:
        return srun(shell, command, env)
    nodes = shell.allocation.nodes
    if program in _SIZED and found.passes is None and nodes is not None and nodes.number > 1:
        # Open MPI starts its daemons by srun, with all of the environment.
        found = found if nodes.said.startswith(("--nodes", "-N")) else remote.of_a_job(command, found)
    passes = None if launchers.passes_unknown(command, found.rest) else found.passes
    if found.remote and found.script and passes is not None:
        passes = launchers.or_printed(passes, found.rest, shell.dumps, shell.dumped_files)
    cut = Cut(found.why, found.fix, command[0].line, found.remote) if found.why else None
    inner = env.through(passes, cut)
    if program in {"singularity", "apptainer"}:
        for name, variable in env.variables.items():
            for prefix in CONTAINER_PREFIXES:
                if name.startswith(prefix) and variable.exported:
                    inner.variables[name.removeprefix(prefix)] = variable
    return inner


def behind(
    shell: Interpreter,
    command: list[Field],
    found: launchers.Passage,
    redirects: list[Redirect],
    env: Environment,
    inner: Environment,
    *,
    sure: bool,
) -> None:
    """What the launcher starts. This shell puts its own variables into the text that another one reads."""
    program = launchers.base(command[0])
    body = next((r for r in redirects if r.body), None)
    reader = found.rest[0].text.split()[0] if found.rest and found.rest[0].text.strip() else ""
    if body is not None and (not found.rest or reader in {"bash", "sh", "python", "python3"}):
        for clash in read_elsewhere.in_document(shell, body, env, remote=found.remote):
            shell.clash(clash)
        if reader.startswith("python"):
            texts.python_program(shell, body)
        elif program != "kubectl":
            texts.inner(shell, documents.unescaped(body), body.body_line, inner, sure=sure)
    elif reader in SHELLS and found.remote and any(r.operator == "<" for r in redirects):
        arrive(shell, inner)  # a script that goes there by its input
    elif found.script:
        joint = next((word for word in command if word.text in {"&&", "||", ";", "|"}), None)
        if joint is not None and program in SHELLS:
            why = f"only the word behind {program} -c is the script; '{joint.text}' and what follows are its arguments"
            shell.clash(Clash("-c", shell.ref(joint.line), why, "Put the whole script into one word."))
        for clash in read_elsewhere.in_words(shell, found.rest, command, env, remote=found.remote):
            shell.clash(clash)
        inner.left = frozenset()  # names in the text below may be ours, left standing as their values are not known
        text = " ".join(_inner_text(shell, f, env) for f in found.rest)
        texts.inner(shell, text, found.rest[0].line if found.rest else command[0].line, inner, sure=sure)
    elif found.rest:
        if found.rest[0].text in shell.functions:
            shell.called.add(found.rest[0].text)
            shell.call(found.rest[0].text, found.rest, inner, sure=sure)
        else:
            start(shell, found.rest, [], inner, sure=sure)
    elif program in {"docker", "podman", "nerdctl", "ray"}:
        arrive(shell, inner)


def _filled(shell: Interpreter, field: Field, env: Environment) -> Field:
    """A word with the variables put in that only this shell knows; what is started does not have them."""
    own = [env.variables.get(piece.text) for piece in pieces(field.raw) if piece.kind == "variable"]
    if not any(v is not None and not v.exported and v.value.text.strip(UNKNOWN) for v in own):
        return field
    made = []
    for piece in pieces(field.raw):
        if piece.kind == "text":
            made.append(re.sub(r'([\\"$`])', r"\\\1", piece.text))  # as it is, also for the shell that reads it next
        else:
            text = keep_unknown(piece.source, shell.lookup(env), here=not shell.expanded_there)
            made.append(text.replace("\\", r"\\").replace('"', r"\""))
    return field._replace(raw=f'"{"".join(made)}"')


def _inner_text(shell: Interpreter, field: Field, env: Environment) -> str:
    """Text that another shell reads; a command that is kept in a variable was put in before this launcher began."""
    if not field.raw:
        return field.text
    made = keep_unknown(field.raw, shell.lookup(env), here=not shell.expanded_there)
    whole = re.fullmatch(r"\$\{?\w+\}?", made)
    return field.text.replace(UNKNOWN, "${UNKNOWN}") if whole and field.text.strip(UNKNOWN) else made


def srun(shell: Interpreter, command: list[Field], env: Environment) -> Environment:
    """--export of srun, or what the batch file's own --export left it as."""
    given = None
    for index, word in enumerate(command):
        if word.text == "--export" and index + 1 < len(command):
            given = command[index + 1]
        elif word.text.startswith("--export="):
            given = word._replace(text=word.text.partition("=")[2])
    line = given.line if given is not None else env.slurm_line
    passes = env.slurm
    found = None
    if given is not None:
        found = batch.listed(given.text, "SRUN")
        passes = found.passes if found.special or found.names or found.sets else None
        passes = None if UNKNOWN in given.text and "\0=" not in given.text.replace(UNKNOWN, "\0") else passes
        directives.split_at_commas(shell, found, line)
    where = f"{launchers.base(command[0])} --export" if given is not None else "sbatch --export"
    why = f"{where} without ALL passes only the variables that it lists to the ranks"
    cut = Cut(why, "Write --export=ALL,…, or add the name to the list.", line)
    inner = env.through(None if passes is None else (lambda name: name in passes), cut)
    for name in held.OF_A_STEP:
        inner.variables.pop(name, None)
        inner.missing.pop(name, None)
    for name, text in found.sets if found is not None else ():
        shell.assign(name, Value(text), line, inner, sure=True, exported=True)
    return inner


_RANKS = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK", "GROUP_RANK", "PET_NODE_RANK"})


def _filled_in_early(shell: Interpreter, found: launchers.Passage, inner: Environment) -> tuple[Early, ...]:
    """What differs from task to task, used where the batch script's own shell puts in its one value."""
    early: list[Early] = []
    for before, field in pairwise([None, *found.rest]):
        option = before.text if before is not None and re.fullmatch(r"--[\w-]{1,40}", before.text) else ""
        here = held.early_in(field.raw, field.line, shell.per_task) if field is not None else ()
        early += [each._replace(name=option) if option and each.name.startswith("$") else each for each in here]
    for name, given in found.sets:
        early += [each._replace(name=name) for each in held.early_in(given.raw, given.line, shell.per_task)]
    for rank in sorted(_RANKS & shell.per_task.keys()):
        variable = inner.variables.get(rank)
        if variable is not None and variable.exported and variable.made:
            early += [Early(rank, each.text, variable.made[0].line) for each in shell.per_task[rank][:1]]
    return tuple(dict.fromkeys(early))


def arrive(shell: Interpreter, env: Environment) -> None:
    """The training starts with this environment."""
    shell.clock += 1
    shell.launches.append(shell.clock)
    for variable in env.variables.values():
        for made in variable.made if variable.exported else ():
            made.reached = True
    for name, (mades, cut) in env.missing.items():
        there = env.variables.get(name)
        if there is None or not there.exported:
            for made in mades:
                made.cut = made.cut or cut


def pin(shell: Interpreter, command: list[Field]) -> None:
    program = launchers.base(command[0])
    if program in {"pip", "pip3", "conda", "mamba", "micromamba", "uv", "module", "ml", "apt-get", "apt", "docker",
                   "podman", "singularity", "apptainer", "srun", "enroot", "python", "python3", "git"}:  # fmt: skip
        shell.release |= release_in(" ".join(f.text for f in command))
