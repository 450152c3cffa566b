"""Who spoke a line."""

from __future__ import annotations

from msgspec import Struct

LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"


class Voice(Struct):
    """Who spoke a line, as far as its prefixes say, and the words themselves; all readers of a file share it."""

    text: str
    time_ns: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    """Number by `srun --label`: a rank where there is one task per rank, a node where torchrun runs below."""
    pid: int | None = None
    host: str | None = None
    place: str = ""
    """Among the processes of a server, by the groups that they form: `TP9`, `PP0_TP1`."""
    by_torch: bool = False
    """A line of torch's C++ or Python logging (not of an exception, not of the script)."""
    stamped: bool = False
    """Whether a time stood before the words, with or without its date."""
    speaker: str = ""
    """The launcher's prefixes: on every line of a process, also on the second line of a message."""
