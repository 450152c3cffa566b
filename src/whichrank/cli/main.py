"""The command `whichrank`: finds the verbs, runs one, and turns every outcome into an exit code."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from whichrank import __version__
from whichrank.cli.terminal.output import Closed, flush, unwritable
from whichrank.model.errors import WhichrankError

HERE = Path(__file__).parent
PHASES = ("before", "during", "after", "tools")
NEW_ISSUE = "please report it with the command and, if you may share them, the files"
USAGE, INTERNAL_ERROR, INTERRUPTED, TERMINATED = 2, 4, 130, 143
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)


@cache
def verbs() -> dict[str, Path]:
    """Verb -> its file."""
    files = (file for phase in PHASES for file in (HERE / phase).iterdir())
    found = {file.stem: file for file in files if file.suffix == ".py" and not file.stem.startswith("_")}
    return dict(sorted(found.items()))


def first_line(file: Path) -> str:
    """The first line of a module's docstring, read without importing the module."""
    with file.open(encoding="utf-8") as stream:
        line = stream.readline()
    return line.strip().strip('"').strip()


def closest(word: str, known: Sequence[str]) -> str:
    """`" Did you mean …?"` where a known word is near, otherwise nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


class Verbs(click.Group):
    """A group whose commands are the files in the folders beside this one, imported only when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if (file := verbs().get(cmd_name)) is None:
            return None
        command = import_module(f"whichrank.cli.{file.parent.name}.{file.stem}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"cli/{file.parent.name}/{file.name} has no click command named `command`")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, first_line(file)) for verb, file in verbs().items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in verbs() and not name.startswith("-"):
            hint = closest(name, list(verbs()))
            if not hint and Path(name).exists():
                hint = f" To look into it: whichrank diagnose {name}"
            raise click.UsageError(f"There is no verb '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=Verbs,
    name="whichrank",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 nothing wrong found, 1 findings, 2 usage, 3 not enough evidence, 4 internal error.",
)
@click.version_option(__version__, prog_name="whichrank", message="%(prog)s %(version)s")
def whichrank() -> None:
    """The debugger for distributed training: which rank, why, and what to do."""


def complain(message: str, hint: str = "") -> None:
    """One line of what is wrong, and one of what to do next, on stderr."""
    from whichrank.report._words import safe

    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    # Names of files are hostile too.
    message, hint = ("\n".join(map(safe, text.split("\n"))) for text in (message, hint))
    click.echo(f"{click.style('whichrank:', fg='red', bold=True)} {message}", err=True, color=colour)
    if hint:
        click.echo(f"  {hint}", err=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and say its exit code; no exception leaves."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        outcome: Any = whichrank.main(given or ["--help"], prog_name="whichrank", standalone_mode=False)
        flush()
    except click.ClickException as error:
        return _wrong_call(error)
    except WhichrankError as error:
        complain(error.message, error.hint)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            return _defect(error)
        complain(str(unwritable(error)), "Free space, or send the output elsewhere.")
        return USAGE
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a user never sees a traceback
        return _defect(error)
    if not given:
        return USAGE
    return outcome if isinstance(outcome, int) else 0


def _wrong_call(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # a verb that only groups others, by itself; since click 8.2
        click.echo(error.format_message(), err=True)
        return USAGE
    context = getattr(error, "ctx", None)
    complain(error.format_message(), f"{context.command_path} --help shows how to call it." if context else "")
    return error.exit_code


def _defect(error: Exception) -> int:
    if os.environ.get("WHICHRANK_DEBUG"):
        raise error
    complain(
        f"internal error: {type(error).__name__}: {error}",
        f"This is a defect of whichrank; {NEW_ISSUE}. WHICHRANK_DEBUG=1 shows the traceback.",
    )
    return INTERNAL_ERROR


def _terminate(_signal: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that temporary folders are removed and children end."""
    raise SystemExit(TERMINATED)


def _hold_closed_streams() -> None:
    """Descriptors that the caller has closed are taken: the next file to be opened must not become stdout."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free; closed again in whatever is started
    if sys.stdout is None:
        sys.stdout = Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def main() -> NoReturn:
    """The entry point of the installed command."""
    _hold_closed_streams()
    signal.signal(signal.SIGTERM, _terminate)
    _leave(run())


def _leave(code: int) -> NoReturn:
    """End without taking every loaded module apart, which takes a tenth of a short run: the system does it at once."""
    if threading.active_count() == 1:  # otherwise Python has threads to wait for
        flush()
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stderr.flush()
        flush()
        os._exit(code)
    sys.exit(code)
