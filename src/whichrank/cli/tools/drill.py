"""Break a real job on purpose, and check that the verdict finds it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from whichrank.cli.terminal.output import write
from whichrank.cli.terminal.wrapping import width, wrapped
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.lab.catalogue import Fault
    from whichrank.lab.drill import Launcher, Outcome
    from whichrank.lab.quiz import Guess

SIZES = "4,2,8"


class Drills(click.Group):
    """Knows what is meant where the name of a fault stands for a verb."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from whichrank.lab import catalogue

        if args[0] in catalogue.names():
            raise click.UsageError(f"'{args[0]}' is a fault. Did you mean whichrank drill run {args[0]}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(name="drill", cls=Drills)
def command() -> None:
    """Real jobs, broken in a known way, on this machine.

    \b
      whichrank drill list                     all faults
      whichrank drill run skipped_collective   break a job, see the verdict beside the truth
      whichrank drill run --quiz               an unknown fault: find it yourself
      whichrank drill score                    every fault, over several seeds: the scoreboard
    """


@command.command(name="list")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Report format.")
def list_faults(form: str) -> None:
    """List the faults, the cause that each must be given, and what it needs."""
    from whichrank.lab import catalogue

    faults = [catalogue.find(name) for name in catalogue.names()]
    if form == "json":
        write([json.dumps([fault.as_json() for fault in faults], indent=2) + "\n"], None)
        return
    for fault in faults:
        needs = f" [needs {', '.join(fault.needs)}]" if fault.needs else ""
        mark = " (injected evidence)" if fault.injected else ""
        write([_row(fault.name, fault.cause, f"{fault.summary}{mark}{needs}")], None)


def _row(name: str, cause: str, told: str) -> str:
    """Three columns where the terminal has room for them; else the words below the names."""
    columns = width()
    if columns is None or columns >= 110:
        return wrapped(f"{name:28} {cause:28} {told}", 58) + "\n"
    return f"{wrapped(f'{name}  ({cause})', 2)}\n{wrapped(f'    {told}')}\n"


@command.command(name="run")
@click.argument("name", metavar="FAULT", required=False)
@click.option("--fault", "file", type=click.Path(dir_okay=False, path_type=Path), help="A fault from your own file.")
@click.option("--ranks", type=click.IntRange(2, 64), default=4, show_default=True, help="Size of the job.")
@click.option("--seed", type=int, default=None, help="Decides rank and step; by default a new one each time.")
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), default="gloo", show_default=True)
@click.option("--launcher", type=click.Choice(["torchrun", "fork"]), help="Default: torchrun, fork above 8 ranks.")
@click.option("--quiz", is_flag=True, help="Hide the truth until you have answered; without FAULT, a random one.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep evidence and verdict here.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Report format.")
@click.pass_context
def run_fault(
    ctx: click.Context, name: str | None, file: Path | None, ranks: int, seed: int | None, backend: str,
    launcher: str | None, quiz: bool, keep: Path | None, form: str,
) -> None:  # fmt: skip
    """Start a real job under `whichrank run`, break it, and show the verdict beside the truth.

    Exit code 0 when cause and culprits are right, 1 when they are not.
    """
    from whichrank.lab import place
    from whichrank.lab.drill import drill

    fault, seed = _chosen(name, file, seed, quiz=quiz)
    lacking = fault.lacking()
    if lacking:
        raise UsageError(
            f"{fault.name} needs {', '.join(lacking)}", "whichrank drill list shows those that need nothing."
        )
    with _cleaned_up():
        said = _progress(hidden=quiz)
        outcome = drill(
            fault, seed, ranks, backend=backend, launcher=cast("Launcher | None", launcher), tell=said
        )  # fmt: skip
        guess = _ask(outcome) if quiz else None
        if keep is not None and outcome.folder is not None:
            shutil.copytree(outcome.folder / "out", keep, dirs_exist_ok=True)
            shutil.copy(outcome.folder / "output.log", keep / "output.log")
        if outcome.folder is not None:
            place.tidy(outcome.folder)
    write([_as_json(outcome)] if form == "json" else _as_text(outcome, guess, keep), None)
    ctx.exit(0 if outcome.mark.right and outcome.mark.exact else 1)


@command.command(name="score")
@click.argument("names", metavar="[FAULT]...", nargs=-1)
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of every fault.")
@click.option("--ranks", "sizes", default=SIZES, show_default=True, help="Sizes, taken in turn by the seeds.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Drills at the same time.")
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), default="gloo", show_default=True)
@click.option("--launcher", type=click.Choice(["torchrun", "fork"]), help="Default: torchrun, fork above 8 ranks.")
@click.option(
    "--corpus", "corpora", type=click.Path(exists=True, path_type=Path), multiple=True,
    help="Recorded cases with a truth.yaml each, a folder or a tar of it; without FAULT, these alone.",
)  # fmt: skip
@click.option(
    "--blind", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A frozen set of cases that nobody tuned for: scored and recorded; a second time it is marked `used`.",
)  # fmt: skip
@click.option(
    "--record", type=click.Path(dir_okay=False, path_type=Path),
    help="Where --blind keeps dates, hashes and figures. Default: SET.scores.jsonl beside the set.",
)  # fmt: skip
@click.option("--peers/--no-peers", "with_peers", default=True, help="Also run other tools on the same evidence.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Writes score.md, score.json, score.svg.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the evidence of every drill here.")
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def score_all(
    names: tuple[str, ...], seeds: int, sizes: str, jobs: int, backend: str, launcher: str | None,
    corpora: tuple[Path, ...], blind: Path | None, record: Path | None, with_peers: bool, out: Path | None,
    keep: Path | None, form: str, quiet: bool,
) -> None:  # fmt: skip
    """Every FAULT (all, if none is named) over several seeds and sizes; peers answer on the same bundles."""
    from whichrank.lab import catalogue, tables
    from whichrank.lab.scoreboard import Round, score

    if blind is not None:
        _score_blind(blind, record, form, (lambda _: None) if quiet else _progress(hidden=False))
        return

    chosen = list(names) or ([] if corpora else catalogue.names())
    wanted = Round(
        [catalogue.find(name) for name in chosen],
        range(1, seeds + 1),
        _numbers(sizes),
        backend,
        cast("Launcher | None", launcher),
        jobs,
        with_peers,
        keep,
    )
    with _cleaned_up():
        board = score(wanted, corpora, (lambda _: None) if quiet else _progress(hidden=False))
    document = json.dumps(board.as_json(), indent=1) + "\n"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write([document], out / "score.json")
        write(tables.markdown(board), out / "score.md")
        write([tables.picture(board)], out / "score.svg")
    forms: dict[str, Callable[[], Any]] = {
        "json": lambda: [document], "markdown": lambda: tables.markdown(board), "text": lambda: tables.text(board),
    }  # fmt: skip
    write(forms[form](), None)


def _score_blind(folder: Path, record: Path | None, form: str, tell: Callable[[str], None]) -> None:
    from whichrank.lab.blind import score

    folder = folder.resolve()
    found = score(folder, record or folder.with_name(f"{folder.name}.scores.jsonl"), tell)
    write([json.dumps(found.as_json(), indent=1) + "\n"] if form == "json" else found.text(), None)


@contextmanager
def _cleaned_up() -> Iterator[None]:
    """Whatever ends this process, nothing of its drills stays."""
    from whichrank.lab import place

    guardian = place.guardian()
    try:
        yield
    finally:
        place.tidy_own()
        if guardian.stdin is not None:
            guardian.stdin.close()
        guardian.wait()


def _progress(*, hidden: bool) -> Callable[[str], None]:
    def tell(line: str) -> None:
        click.echo("a job is started and broken …" if hidden else line, err=True)

    return tell


def _chosen(name: str | None, file: Path | None, seed: int | None, *, quiz: bool) -> tuple[Fault, int]:
    """The fault, and a seed by chance where none is given."""
    from random import SystemRandom

    from whichrank.lab import catalogue

    chance = SystemRandom()
    if file is not None and name is not None:
        raise UsageError("both a name and a file are given", "Give FAULT or --fault FILE.")
    if file is None and name is None and not quiz:
        raise UsageError("no fault is named", "whichrank drill list shows them; --quiz picks one at random.")
    if file is not None:
        fault = catalogue.from_file(file)
    elif name is not None:
        fault = catalogue.find(name)
    else:
        possible = [each for each in map(catalogue.find, catalogue.names()) if not each.lacking() and not each.injected]
        fault = chance.choice(possible)
    return fault, chance.randrange(10_000) if seed is None else seed


def _numbers(text: str) -> list[int]:
    words = text.replace(" ", "").split(",")
    if not all(word.isdigit() and 2 <= int(word) <= 64 for word in words):
        raise UsageError(f"'{text}' are not sizes", "Write them as 2,4,8; from 2 to 64 ranks.")
    return [int(word) for word in words]


def _ask(outcome: Outcome) -> Guess:
    """The person's own answer, with the evidence at hand."""
    from whichrank.lab import quiz

    folder = outcome.folder
    click.echo(f"\nThe evidence is in {folder}/out/bundle, the job's output in {folder}/output.log.", err=True)
    ranks = click.prompt("Which ranks are to blame (Enter for nobody)", default="", show_default=False, err=True)
    cause = click.prompt("What is the cause (a slug or words)", default="unknown", show_default=False, err=True)
    return quiz.parse(ranks, cause, outcome.truth)


def _as_json(outcome: Outcome) -> str:
    document = dict(outcome.diagnosis or {"schema_version": 1, "verdict": None})
    document["truth"] = outcome.truth.as_json()
    document["drill"] = {
        "fault": outcome.fault.name,
        "seed": outcome.plan.seed,
        "ranks": outcome.plan.world,
        "injected": outcome.fault.injected,
        "right_cause": outcome.mark.right,
        "exact_culprits": outcome.mark.exact,
        "innocents_accused": outcome.mark.accused,
        "alarm_s": outcome.alarm_s,
        "verdict_s": outcome.verdict_s,
        "exit_code": outcome.exit_code,
        "notes": outcome.notes,
    }
    return json.dumps(document, indent=2) + "\n"


def _as_text(outcome: Outcome, guess: Guess | None, keep: Path | None) -> Iterator[str]:
    plan, fault, answer, mark = outcome.plan, outcome.fault, outcome.answer, outcome.mark
    yield f"fault    {fault.name}: {fault.summary}\n"
    yield f"job      {plan.world} ranks, {plan.backend}, {fault.workload}, seed {plan.seed}\n"
    yield f"truth    {outcome.truth.cause}, {_ranks(outcome.truth.culprit_ranks)}\n"
    if guess is not None:
        good = _good(guess.mark.right, guess.mark.exact)
        yield f"you      {guess.answer.cause}, {_ranks(guess.answer.ranks)}: {good}\n"
    yield f"verdict  {answer.cause}, {_ranks(answer.ranks)}: {_good(mark.right, mark.exact)}\n"
    yield f"         {answer.summary}\n"
    if outcome.verdict_s is not None:
        yield f"time     alarm {outcome.alarm_s} s, verdict {outcome.verdict_s} s after the fault\n"
    for note in outcome.notes:
        yield f"note     {note}\n"
    if keep is not None:
        yield f"kept     whichrank diagnose {keep}/bundle\n"


def _ranks(ranks: tuple[int, ...] | None) -> str:
    if ranks is None:
        return "no rank in particular"
    return f"ranks {', '.join(map(str, ranks))}" if ranks else "nobody"


def _good(right: bool, exact: bool) -> str:
    if right and exact:
        return "right"
    return "right cause, other ranks" if right else ("right ranks, other cause" if exact else "wrong")
