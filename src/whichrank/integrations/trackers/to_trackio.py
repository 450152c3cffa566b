"""trackio: an alert, and the verdict as the configuration and last values of a run of its own."""

from __future__ import annotations

import os
from importlib import import_module

from whichrank.integrations.trackers import Told

_LEVELS = {"critical": "ERROR", "warning": "WARN", "info": "INFO"}


def tell(news: Told) -> str:
    trackio = import_module("trackio")
    project = news.place or os.environ.get("TRACKIO_PROJECT") or "whichrank"
    name = news.run or f"whichrank-{news.key[:8]}"
    trackio.init(project=project, name=name, resume="allow", embed=False, config={"job": news.job})
    trackio.alert(title=news.title, text=news.text, level=getattr(trackio.AlertLevel, _LEVELS[news.severity]))
    if news.kind == "verdict":
        values = {f"whichrank/{name}": value for name, value in news.summary().items()}
        if news.page:
            values["whichrank/report"] = trackio.Markdown(f"Report: `{news.page}`")
        trackio.log(values)
    trackio.finish()
    return name
