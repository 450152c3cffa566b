"""Break a real job on purpose, and see whether the verdict finds it."""

from __future__ import annotations

import click


@click.group(name="drill")
def command() -> None:
    """Real jobs, broken in a known way, on this machine.

    \b
      whichrank drill list                     the faults there are
      whichrank drill run skipped_collective   break a job, see the verdict beside the truth
      whichrank drill run --quiz               a fault that you don't know: find it yourself
      whichrank drill score                    every fault, over several seeds: the scoreboard
    """
