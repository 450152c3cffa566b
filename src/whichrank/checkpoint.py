"""`whichrank.checkpoint`, for programs that have nothing of the kind: save, latest, opened."""

from __future__ import annotations

from whichrank.worker.checkpoint import Checkpoint, CheckpointError, latest, opened, save

__all__ = ["Checkpoint", "CheckpointError", "latest", "opened", "save"]
