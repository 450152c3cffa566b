"""`run --preflight`: the quick checks of this host, before the job starts."""

from __future__ import annotations

from collections.abc import Callable


def refuses(tell: Callable[[str], None]) -> bool:
    """Whether an error was found; warnings are told and let pass."""
    from whichrank.fleet.engines import here
    from whichrank.flows.preflight.check import Wishes, preflight
    from whichrank.model.preflight import Launch

    told = preflight(here.engine(), Wishes(Launch(), quick=True))
    errors = [finding for finding in told.findings if finding.severity == "error"]
    for finding in told.findings:
        if finding.severity != "info":
            tell(f"preflight: {finding.severity}: {finding.message} [{finding.code}]")
    if errors:
        tell("preflight: the job was not started; without --preflight it is")
    return bool(errors)
