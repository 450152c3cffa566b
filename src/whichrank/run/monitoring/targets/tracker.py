"""Trackers of experiments (W&B, MLflow, TensorBoard, trackio): an alert, the summary of the run, and the page.

Each is called in a process of its own: their packages are large, have threads, and may wait for a server for long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.news import News

LIMIT_S = 60.0
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboard", "trackio": "trackio"}
CHILD = "whichrank.integrations.trackers"


@dataclass(slots=True)
class Tracker:
    """One tool, and the project, experiment or folder in it."""

    name: str
    place: str
    run: str = ""
    """The run that the first news made: what follows goes there too."""
    patience_s: float = LIMIT_S

    @classmethod
    def of(cls, name: str, place: str) -> Tracker:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise UsageError(f"{name} is not installed", f"Install it: pip install 'whichrank[{name}]'")
        if name == "tensorboard" and not place:
            raise UsageError("tensorboard needs its folder", "Write --notify tensorboard:runs/")
        return cls(name, place)

    def deliver(self, news: News) -> str:
        page = news.page
        told: dict[str, Any] = {
            "place": self.place, "run": self.run, "title": news.title, "text": news.text, "key": news.key,
            "severity": news.severity, "kind": news.kind, "job": news.job, "page": str(page) if page else None,
            "fields": news.for_programs(),
        }  # fmt: skip
        # What the launcher tells ranks is not meant for this process.
        inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", CHILD, self.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=inherited, start_new_session=True,
        )  # fmt: skip
        try:
            answer, _ = child.communicate(json.dumps(told, default=int).encode(), LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"no answer within {LIMIT_S:g} s"
        finally:
            _end(child)
        return self._heard(answer, child.returncode)

    def _heard(self, answer: bytes, code: int) -> str:
        try:
            heard = json.loads(answer.decode("utf-8", "replace").strip().splitlines()[-1])
            self.run = str(heard.get("run") or self.run)
            return str(heard.get("failure", ""))[:300]
        except (IndexError, ValueError, AttributeError):
            return f"its process ended with code {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """The child and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
