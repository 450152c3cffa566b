"""TensorBoard: the verdict as text and an alarm as a scalar, in event files of their own below the folder."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from whichrank.integrations.trackers import Told

_LEVELS = {"critical": 2.0, "warning": 1.0, "info": 0.0}


def tell(news: Told) -> str:
    writers = import_module("tensorboard.summary.writer.event_file_writer")
    folder = Path(news.place) / "whichrank"
    writer = writers.EventFileWriter(str(folder), filename_suffix=".whichrank")
    text = import_module("tensorboard.plugins.text.summary_v2").text_pb
    scalar = import_module("tensorboard.plugins.scalar.summary_v2").scalar_pb
    events = [scalar("whichrank/alarm", _LEVELS[news.severity]), text("whichrank/alert", _as_code(news.text))]
    if news.kind == "verdict":
        rows = "\n\n".join(f"**{name}**\n\n{_as_code(str(value))}" for name, value in news.summary().items())
        events.append(text("whichrank/verdict", rows))
    event = import_module("tensorboard.compat.proto.event_pb2").Event
    for summary in events:
        writer.add_event(_event(event, summary))
    writer.close()
    return str(folder)


def _event(kind: Any, summary: Any) -> Any:
    # The time orders the alarms of a job; its steps may be unknown.
    return kind(summary=summary, wall_time=time.time(), step=int(time.time()))


def _as_code(text: str) -> str:
    """Quoted evidence is not Markdown: four spaces before every line."""
    return "\n".join(f"    {line}" for line in text.splitlines())
