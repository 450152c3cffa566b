"""The training progress that the output of a job shows, in columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

ABSENT, FINITE, NOT_A_NUMBER, INFINITE = 0, 1, 2, 3


def _ints() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


def _floats() -> npt.NDArray[np.float64]:
    return np.empty(0, np.float64)


class Progress(Struct):
    """The training's own lines of one file, oldest first: the newest, and the first ones."""

    source: str
    full: bool = False
    """True where lines between the first and the newest were let go."""
    step: npt.NDArray[np.int64] = field(default_factory=_ints)
    """-1 where the line has none."""
    total: npt.NDArray[np.int64] = field(default_factory=_ints)
    """Steps to do, by "120/1000"; -1 where the line does not say."""
    epoch: npt.NDArray[np.float64] = field(default_factory=_floats)
    """nan where the line has none."""
    time_ns: npt.NDArray[np.int64] = field(default_factory=_ints)
    """0 where the line has none."""
    loss: npt.NDArray[np.float64] = field(default_factory=_floats)
    loss_state: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """ABSENT, FINITE, NOT_A_NUMBER or INFINITE: tells a NaN loss from a line without one."""
    seconds_per_step: npt.NDArray[np.float64] = field(default_factory=_floats)
    """nan where the line has none."""
    rank: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Global rank; -1 where nothing says."""
    line: npt.NDArray[np.int64] = field(default_factory=_ints)

    def __len__(self) -> int:
        return len(self.step)
