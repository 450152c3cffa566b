"""MLflow: tags, a description and the page as an artifact, in the job's run (MLFLOW_RUN_ID) or in one of its own."""

from __future__ import annotations

import os
from importlib import import_module

from whichrank.integrations.trackers import Told

TAG = 5000
"""MLflow cuts or refuses longer tags."""


def tell(news: Told) -> str:
    mlflow = import_module("mlflow")
    client = mlflow.MlflowClient()
    own = not os.environ.get("MLFLOW_RUN_ID")
    run = news.run or os.environ.get("MLFLOW_RUN_ID") or _begun(client, news)
    client.set_tag(run, "whichrank.alert", f"{news.severity}: {news.title}"[:TAG])
    for name, value in news.summary().items() if news.kind == "verdict" else ():
        client.set_tag(run, f"whichrank.{name}", str(value)[:TAG])
    if own:
        client.set_tag(run, "mlflow.note.content", news.text[:TAG])
    if news.page:
        client.log_artifact(run, news.page, "whichrank")
    if own:
        client.set_terminated(run, "FINISHED")
    return str(run)


def _begun(client: object, news: Told) -> str:
    mlflow = import_module("mlflow")
    name = news.place or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "whichrank"
    experiment = mlflow.set_experiment(name).experiment_id
    run = client.create_run(experiment, run_name=f"whichrank: {news.job}")  # type: ignore[attr-defined]
    return str(run.info.run_id)
