"""What the output of a job says: events (few, with their words) and training progress (columns)."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import numpy as np
import numpy.typing as npt

from whichrank.model.evidence import Ref
from whichrank.model.quick_dataclass import dataclass
from whichrank.records.dump import Frame

Value = str | int | float | list[int] | list[str]

EventKind = Literal[
    "watchdog_timeout", "watchdog_progress", "watchdog_terminated", "watchdog_stuck", "gil_held", "dump_signal",
    "dump_started", "dump_written", "dump_failed", "collective_stack", "desync_report", "fingerprint_mismatch",
    "monitored_barrier_failed", "stall_report", "gloo_timeout", "gloo_init_error", "gloo_mismatch", "peer_closed",
    "nccl_error", "member_begins", "members_met", "store_passed", "store_error", "rendezvous_error", "init_error",
    "ddp_error", "cuda_error", "traceback", "native_crash", "dataloader_worker_died", "elastic_failure",
    "elastic_signal", "elastic_restart", "in_operation", "process_left", "launcher_ended", "process_exit",
    "job_ended", "scheduler_job", "node_silent", "host_out_of_memory", "run_finished", "at_work", "environment",
    "not_joined", "group_init", "comm_init", "group_teardown", "torch_env", "device_guess", "loss_nonfinite",
]  # fmt: skip
"""What a line of a log may say; a misspelled kind is an error of types."""

EventKey = Literal[
    "by", "chained_from", "class", "code", "counts", "ends", "enqueued", "exitcode", "expected", "got", "host",
    "how", "ignored", "interface", "job", "joined", "key", "kind", "last_error", "library", "message", "missing",
    "ms", "name", "numel_in", "of_another", "op", "op_a", "pg_desc", "pg_id", "pg_name", "port", "ran_ms",
    "rank_a", "rank_b", "ranks", "ready", "reason", "restarts", "seconds", "seq", "seq_a", "signal", "signal_number",
    "size", "some", "step", "target_pid", "tasks", "text", "thread", "timeout_ms", "tried_bytes", "type", "value",
    "waiting", "what", "whom", "word", "work", "world_size",
]  # fmt: skip
"""The values of events that anything reads."""

EVENT_KINDS: dict[EventKind, str] = {
    "watchdog_timeout": "this rank WAITED: seq, op, numel_in, numel_out, timeout_ms, ran_ms",
    "watchdog_progress": "the group's counters on this rank: work, enqueued, started, completed",
    "watchdog_terminated": "the watchdog takes the process down: reason",
    "watchdog_stuck": "the watchdog itself made no progress: seconds",
    "gil_held": "a thread holds the interpreter lock: ms",
    "dump_signal": "a recorder dump was asked for: own (1: by this rank) or from_rank; enqueued, completed",
    "dump_started": "the recorder begins to write: path",
    "dump_written": "the recorder wrote: path",
    "dump_failed": "the recorder could not write: reason, path",
    "collective_stack": "frames (innermost first) of the collective that failed; missing=1: torch had none",
    "desync_report": "one statement of the desync report: what, ranks, seq, op",
    "fingerprint_mismatch": "DETAIL: rank_a, rank_b (of the group), op_*, seq_*, shape_*, dtype_*, aspects",
    "monitored_barrier_failed": "what=missing: ranks (of the group) absent; what=rank0: rank 0 absent",
    "stall_report": "Horovod: ranks missing from every stalled tensor, from some of them; ranks ready with one",
    "gloo_timeout": "waited in send or recv; no peer is named: direction, ms",
    "gloo_init_error": "the full mesh, the interface or the host's name failed: reason, interface, hostname",
    "gloo_mismatch": "sizes differ between ranks: got, expected (bytes)",
    "peer_closed": "a victim: its peer went away: via (gloo, nccl), peer",
    "nccl_error": "class, text, last_error, version, seq, op",
    "member_begins": "Lightning: this rank is about to make the group: size",
    "members_met": "Lightning: all ranks have made the group: size",
    "store_passed": "the start barrier in the store is behind this rank: key",
    "store_error": "what=connect_timeout|connect_failed|clients_missing|key_timeout|port_in_use|closed|dns|…",
    "rendezvous_error": "class, reason",
    "init_error": "what=env_missing|no_nccl|bad_timeout|bad_env: name, reason",
    "ddp_error": "what=unused|unused_indices|unused_names|marked_twice|param_shape|param_count",
    "cuda_error": "what=out_of_memory|device_assert|assert_line|illegal_access|ecc|…: reason, *_bytes",
    "traceback": "type, message, thread, ignored, truncated, of_another (another rank printed it); frames",
    "native_crash": "signal, what, reason",
    "dataloader_worker_died": "worker_pid, signal or exitcode",
    "elastic_failure": "a row of the table: exitcode, signal, error_file, root (first SEEN dead, no verdict)",
    "elastic_signal": "what=closing (it ends target_pid)|death (it was told to end)|got|forced; signal",
    "elastic_restart": "the worker group starts again: attempts_left",
    "in_operation": "where a rank was when it was looked at: op, word (from, to), whom (a global rank)",
    "process_left": "a rank ended without a failure, while the job ran",
    "launcher_ended": "a launcher was ended by a signal: signal",
    "process_exit": "a launcher saw a process end: exitcode, signal, tasks, by",
    "job_ended": "the scheduler ended the job: reason, by, signal",
    "scheduler_job": "which job of a scheduler this is: kind, job, name, step, node, nodes, restarts, ends",
    "node_silent": "a watcher heard nothing of a whole node any more: how (no answer, not renewed), ranks",
    "host_out_of_memory": "a scheduler saw the kernel's out-of-memory killer: by",
    "run_finished": "the end of a file says that the run ended well: how (words, exit)",
    "at_work": "the file ends with the regular lines of a job at work; line: the first of the last eight",
    "environment": "what a rank was started with: one key per variable",
    "not_joined": "a rank had not begun to make its process group when it was looked at, or ended",
    "group_init": "a process group was made: size, timeout_ms, name",
    "comm_init": "this rank begins to create a communicator: size of the job where it is known",
    "group_teardown": "what=destructor|not_destroyed|destroying|flushed",
    "torch_env": "the variables as torch read them: one key per variable",
    "device_guess": "torch guesses the device from the rank",
    "loss_nonfinite": "first NaN or infinity of a rank: what (loss, grad_norm), value, step",
}
"""Every `LogEvent.kind`, with the keys of `data`."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One statement of a log. `rank` is GLOBAL; a rank inside a group is `group_rank`."""

    kind: EventKind
    ref: Ref
    time_ns: int | None = None
    """The writer's wall clock, taken as UTC where the line has no zone. torch's own C++ prefix has a
    fraction that does not belong to its second (recorded: 22.397 before 22.042): good to a second."""
    rank: int | None = None
    group_rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None
    data: dict[str, Value] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    after_ns: int | None = None
    """The newest time seen earlier in the same file, where the line has none."""
    line: int = 0

    def number(self, key: EventKey) -> int | None:
        value = self.data.get(key)
        return value if isinstance(value, int) else None

    def text(self, key: EventKey) -> str:
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    def variable(self, name: str) -> str | None:
        """What a variable of the environment was set to, in an event that holds one."""
        value = self.data.get(name)
        return value if isinstance(value, str) else None

    def numbers(self, key: EventKey) -> tuple[int, ...]:
        value = self.data.get(key)
        return tuple(item for item in value if isinstance(item, int)) if isinstance(value, list) else ()


ABSENT, FINITE, NOT_A_NUMBER, INFINITE = 0, 1, 2, 3


def _ints() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


def _floats() -> npt.NDArray[np.float64]:
    return np.empty(0, np.float64)


@dataclass(slots=True)
class Progress:
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
