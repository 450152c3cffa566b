"""Weights & Biases: a run of type `whichrank` beside the job's own, with an alert, the summary and the page."""

from __future__ import annotations

import os
from importlib import import_module

from whichrank.integrations.trackers import Told

_LEVELS = {"critical": "ERROR", "warning": "WARN", "info": "INFO"}


def tell(news: Told) -> str:
    wandb = import_module("wandb")
    # The job may write to its own run (WANDB_RUN_ID) at this moment: a second writer would damage it.
    watched = os.environ.pop("WANDB_RUN_ID", None)
    run = wandb.init(
        project=news.place or os.environ.get("WANDB_PROJECT") or "whichrank",
        id=news.run or news.key,
        name=f"whichrank: {news.job}",
        job_type="whichrank",
        group=os.environ.get("WANDB_RUN_GROUP") or watched,
        config={"watched_run": watched, "job": news.job},
        resume="allow",
    )
    run.alert(title=news.title[:64], text=news.text, level=getattr(wandb.AlertLevel, _LEVELS[news.severity]))
    if news.kind == "verdict":
        run.summary.update({f"whichrank/{name}": value for name, value in news.summary().items()})
    if news.page:
        run.log({"whichrank/report": wandb.Html(news.page)})
    run.finish(exit_code=0)
    return str(run.id)
