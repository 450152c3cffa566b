"""One rank's evaluation waits for a judge that does not answer."""

import subprocess
import sys

CAUSE = "rank-stuck-in-evaluation"
CATEGORY = "hang"
WORKLOAD = "phases"


def launch(setup):
    setup.limit_s = 240.0  # work that takes long by its nature is borne for longer


def inside(rank, point, value):
    if point == "evaluate" and rank.guilty and rank.step >= rank.plan.step:
        rank.strike()
        ask_judge("the answer of the model")


def ask_judge(text):
    """A program beside the training, as scorers often are."""
    judge = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
    subprocess.run(judge, input=text.encode(), capture_output=True, check=True)
