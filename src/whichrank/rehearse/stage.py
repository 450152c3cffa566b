"""Starts the process that rehearses, hands it requests, and takes its records. Nothing of it stays behind."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from whichrank.model.errors import WhichrankError

IMPORT_S = 120.0
"""torch and what the script imports, on a slow disk."""
GRACE_S = 30.0
LARGEST = 256 << 20
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "NEPTUNE_MODE": "offline",
    "COMET_OFFLINE_DIRECTORY": "/tmp/comet",  # noqa: S108 - inside the cell
    "CLEARML_OFFLINE_MODE": "1",
    "MLFLOW_TRACKING_URI": "file:/tmp/mlruns",
    "DO_NOT_TRACK": "1",
}
PLAIN = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}
LEFT_OUT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PYTHONSTARTUP")


class StageError(WhichrankError):
    """The rehearsing process could not be started or has gone."""


class Stage:
    """One process with torch in it, for any number of rehearsals of one script."""

    def __init__(self, setup: dict[str, Any], python: str) -> None:
        self.setup, self.python = setup, python
        self.room = Path(tempfile.mkdtemp(prefix="whichrank-rehearse-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.answers = -1
        self.buffer = bytearray()
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Stage:
        answers, writing = os.pipe()
        self.answers = answers
        package = str(Path(__file__).parents[2])
        variables = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [package, variables.get("PYTHONPATH", "")]))
        variables |= PLAIN
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [self.python, "-m", "whichrank.worker.rehearsal.main", str(writing)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors(), pass_fds=[writing],
                env=variables, start_new_session=True, cwd=self.setup["cwd"],
            )  # fmt: skip
        except OSError as error:
            raise StageError(f"can't start {self.python}: {error}", "Give --python an interpreter.") from error
        finally:
            os.close(writing)
        self.ready = self.ask({**self.setup, "room": str(self.room), "environment": OFFLINE | PLAIN}, IMPORT_S)
        return self

    def _errors(self) -> int:
        return os.open(self.room.with_suffix(".stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """Send one request, get one record."""
        if self.process is None or self.process.stdin is None:
            raise StageError("the rehearsal has not started")
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise StageError(self._why()) from error
        deadline = time.monotonic() + patience_s
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise StageError("the rehearsal did not answer in time", "Give --time-limit more seconds.")
            ready, _, _ = select.select([self.answers], [], [], min(left, 1.0))
            piece = os.read(self.answers, 1 << 20) if ready else None
            if piece == b"" or len(self.buffer) > LARGEST:
                raise StageError(self._why())
            self.buffer += piece or b""
        line, _, rest = bytes(self.buffer).partition(b"\n")
        self.buffer = bytearray(rest)
        record = json.loads(line)
        if not isinstance(record, dict):
            raise StageError("the rehearsal answered with something strange")
        return record

    def _why(self) -> str:
        """What the process said last."""
        try:
            lines = self.room.with_suffix(".stderr").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        if any("No module named 'torch'" in line for line in lines):
            return f"{self.python} has no torch"
        return f"the rehearsal ended early: {lines[-1] if lines else 'no output'}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            if self.process.stdin is not None:
                with suppress(BrokenPipeError):
                    self.process.stdin.close()
        if self.answers >= 0:
            os.close(self.answers)
        shutil.rmtree(self.room, ignore_errors=True)
        self.room.with_suffix(".stderr").unlink(missing_ok=True)


def interpreter(given: str | None) -> str:
    return given or sys.executable
