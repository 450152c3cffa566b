"""Where the time of training steps goes: what `trace` has to say; the reports only put it into words."""

from __future__ import annotations

from msgspec import Struct

from whichrank.model.evidence import Coverage
from whichrank.model.findings import Finding


class RankShares(Struct, frozen=True):
    """Where one rank's time went, in percent; compute, exposed communication, memory and idle add up to 100."""

    rank: int | None
    file: str
    host: str | None
    steps: int
    span_us: float
    step_us: float
    """The median step."""
    compute_pct: float | None
    communication_pct: float | None
    exposed_pct: float | None
    memory_pct: float | None
    idle_pct: float | None
    overlap_pct: float | None
    """Share of the communication that computation hides; None without communication."""
    idle_why: dict[str, float]
    hta: dict[str, float | None]
    waiting_pct: float | None = None
    """Share of the time exposed in collectives whose last member had not arrived yet; None with one rank only."""
    clock_offset_us: float = 0.0
    on_device: bool = True


class Straggler(Struct, frozen=True):
    """A rank that arrives late, what that costs, and what it did meanwhile."""

    rank: int
    late_us_per_step: float
    cost_us_per_step: float | None
    """What all would gain if it were as fast as the others; 0 where the lateness is hidden. None: can't tell."""
    doing: str
    reason: str
    steps: int
    of_steps: int
    host: str | None = None


class Advice(Struct, frozen=True):
    """A change and what it would return."""

    what: str
    setting: str | None
    gain_us_per_step: float | None
    confidence: float
    why: str = ""
    id: str = ""
    gain_range_us_per_step: tuple[float, float] | None = None
    """At least and at most, where the recording leaves that open; the gain is None where the two lie too far apart."""


class CollectiveShare(Struct, frozen=True):
    """Collectives of one kind and size in one group."""

    op: str
    group: str
    ranks: int | None
    bytes: int | None
    per_step: float
    time_us: float | None
    waiting_us: float | None
    """Of that, before the last member had arrived."""
    moving_us: float | None
    busbw_gbs: float | None
    expected_gbs: float | None
    kernel: str
    algorithm: str | None = None
    """By the kernel's name: ring, tree, nvls, … and the protocol; None where it does not tell."""


class Bucket(Struct, frozen=True):
    """One of DDP's buckets in a typical step: gradients that are reduced together."""

    bytes: int | None
    dtype: str | None
    begins_us: float
    """After the beginning of the step."""
    takes_us: float
    parameters: tuple[str, ...] = ()
    """Whose gradients it holds, where the profile tells."""


class BucketSize(Struct, frozen=True):
    """What a step would take with DDP's buckets of this size."""

    bucket_cap_mb: float
    buckets: int
    step_us: float
    range_us: tuple[float, float]
    """At least and at most, by what the recording leaves open."""


class RankDrawing(Struct, frozen=True):
    """One rank's row of the map: changes of state on the common clock, microseconds from its beginning."""

    label: str
    rank: int | None
    host: str | None
    at_us: tuple[float, ...]
    state: tuple[int, ...]
    steps_us: tuple[float, ...]


class StepReport(Struct, frozen=True):
    """All that `trace` has to say."""

    ranks: tuple[RankShares, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    advice: tuple[Advice, ...] = ()
    collectives: tuple[CollectiveShare, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    bucket_sizes: tuple[BucketSize, ...] = ()
    findings: tuple[Finding, ...] = ()
    drawings: tuple[RankDrawing, ...] = ()
    states: tuple[str, ...] = ()
    """Names of the drawings' states."""
    step_us: float | None = None
    world: int | None = None
    matched: int = 0
    """Collectives that several of the profiles have in common."""
    replay_error_pct: float | None = None
    """How far the replay of the recorded steps is from what was recorded; None: not replayed."""
    notes: tuple[str, ...] = ()
    coverage: Coverage = Coverage()
