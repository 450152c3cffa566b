"""How the run stands, and what it was started with."""

from __future__ import annotations

from msgspec import field

from whichrank.records.events.base import Event, OfGroup


class RunFinished(Event, kw_only=True):
    """The end of a file says that the run ended well."""

    how: str = ""
    """words, exit, shutdown (a server that was asked to end), watched (whoever watched it saw its end), accounted (the
    scheduler's records) or tasks (they say so of the tasks of a step too)."""


class AtWork(Event, kw_only=True):
    """The file ends with the regular lines of a job at work; `line` is the first of the last eight."""


class CheckpointLoad(Event, kw_only=True):
    """A rank or host loads a checkpoint, or goes on without one."""

    found: bool = True


class LossNonfinite(Event, kw_only=True):
    """The first NaN or infinity of a rank."""

    what: str = ""
    """loss, grad_norm, or another value."""
    value: str = ""
    step: int | None = None


NCCL_PACKAGE = "nvidia-nccl"
"""The version of that package, among the variables of an environment."""


PRECISION = "precision"
"""The type that a rank says it computes in, among them too: bf16, fp16, fp32 or tf32."""


class Environment(Event, kw_only=True):
    """What a rank, or the ranks of a host, were started with."""

    variables: dict[str, str] = field(default_factory=dict)


class TorchEnv(OfGroup, kw_only=True):
    """The variables as torch read them."""

    variables: dict[str, str] = field(default_factory=dict)
