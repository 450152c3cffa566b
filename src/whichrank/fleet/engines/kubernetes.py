"""Pods of a running job, by `kubectl exec`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from whichrank.fleet.engines import Engine
from whichrank.model.errors import UsageError


def engine(selector: str, container: str | None = None) -> Engine:
    """`NAMESPACE/SELECTOR` or `SELECTOR`: the labels that the pods of the job share."""
    namespace, _, labels = selector.rpartition("/")
    # A label may hold a slash itself: app.kubernetes.io/name=x.
    if "=" in namespace or "." in namespace:
        namespace, labels = "", selector
    where = ["--namespace", namespace] if namespace else []
    pods = _pods(["kubectl", *where, "get", "pods", "--selector", labels, "--output", "json"])
    inside = ["--container", container] if container else []

    def wrap(host: str, command: Sequence[str]) -> list[str]:
        return ["kubectl", *where, "exec", "--stdin", host, *inside, "--", *command]

    return Engine("kubernetes", tuple(pods), wrap, addresses=pods)


def _pods(command: list[str]) -> dict[str, str]:
    """Name -> address of those that run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
        entries = json.loads(done.stdout)["items"]
        found = {
            str(pod["metadata"]["name"]): str(pod["status"]["podIP"])
            for pod in entries if pod.get("status", {}).get("phase") == "Running" and pod["status"].get("podIP")
        }  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise UsageError(f"kubectl failed: {str(said).strip()[:200]}", "Try: " + " ".join(command)) from error
    if not found:
        raise UsageError("no running pod has these labels", "Try: " + " ".join(command))
    return found
