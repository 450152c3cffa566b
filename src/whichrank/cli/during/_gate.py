"""`run --preflight`: the quick checks of this host, against what the command will start here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_RANKS = ("--nproc-per-node", "--nproc_per_node", "--num_gpus")
_PORT = ("--master-port", "--master_port", "--main_process_port")


def refuses(command: Sequence[str], tell: Callable[[str], None]) -> bool:
    """Whether an error was found; warnings are told and let pass."""
    from whichrank.fleet.engines import here
    from whichrank.flows.preflight.check import Wishes, preflight
    from whichrank.model.preflight import DEFAULT_PORT, Launch

    launch = Launch(ranks_per_host=_number(command, _RANKS), port=_number(command, _PORT) or DEFAULT_PORT)
    told = preflight(here.engine(), Wishes(launch, quick=True))
    errors = [finding for finding in told.findings if finding.severity == "error"]
    for finding in told.findings:
        if finding.severity != "info":
            tell(f"preflight: {finding.severity}: {finding.message} [{finding.code}]")
    if errors:
        tell("preflight: the job was not started; without --preflight it is")
    return bool(errors)


def _number(command: Sequence[str], names: Sequence[str]) -> int | None:
    """Of a launcher's option, `--name N` or `--name=N`; None for words such as `gpu` and `auto`."""
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, _, value = word.partition("=")
        if name in names:
            given = value or following
            return int(given) if given.isdigit() and int(given) else None
    return None
