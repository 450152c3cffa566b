"""What a benchmark of collectives measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field


class BenchResult(Struct, frozen=True):
    """One collective at one size."""

    collective: str
    bytes: int
    """Of the whole array, as nccl-tests prints the size."""
    dtype: str
    ranks: int
    time_us: float
    algbw_gbs: float | None
    busbw_gbs: float | None
    correct: bool | None = None
    """None where nobody checked."""
    spread: float | None = None
    """Distance of the quartiles of the batches, as a share of the median."""
    expected_gbs: float | None = None
    source: str = ""
    """Where the expectation comes from."""
    in_place: bool = False

    @property
    def key(self) -> tuple[str, int, int, bool]:
        return self.collective, self.bytes, self.ranks, self.in_place


class BenchRun(Struct, frozen=True):
    """All results of one run, with the machine they are of."""

    results: Sequence[BenchResult] = ()
    backend: str = ""
    device: str = ""
    """The product name of the GPU, or `cpu`."""
    hosts: Sequence[str] = ()
    """Of every rank its host."""
    torch: str | None = None
    nccl: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """Collective -> why the backend could not do it."""
    stragglers: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    """Kind of work -> rank -> seconds of each round."""
    origin: str = "bench"
    """`bench`, or the file that was read."""
    baseline: Sequence[BenchResult] = ()
    """Results of an earlier run to compare with."""
    stopped: str = ""
    """Why it ended before its end: stuck, failed, or out of time."""

    @property
    def nodes(self) -> int:
        return len(set(self.hosts)) or 1
