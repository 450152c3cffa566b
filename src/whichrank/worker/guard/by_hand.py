"""Updates that a script makes by itself, without an optimizer of torch: its parameters are watched all the same."""

from __future__ import annotations

from typing import Any

PASSES = 4
"""Backward passes without any optimizer in sight, after which the script is taken to update by hand."""
STILL = 8
"""Passes without a trace of an update: code that writes to `.data` leaves none, and every pass counts as a step."""


class ByHand:
    """Stands in for an optimizer: the parameters that are trained, and when they were written to."""

    def __init__(self, roots: list[Any]) -> None:
        found = {id(p): p for root in roots for p in root.parameters() if p.requires_grad}
        self.param_groups: list[dict[str, Any]] = [{"params": list(found.values())}]
        self.state: dict[Any, Any] = {}
        self._still = 0
        self._versions = self._now()

    @property
    def parameters(self) -> list[Any]:
        return list(self.param_groups[0]["params"])

    def stepped(self) -> bool:
        """Whether the parameters were updated since the last call."""
        before, self._versions = self._versions, self._now()
        self._still = self._still + 1 if before == self._versions else 0
        return self._still == 0 or self._still > STILL

    def _now(self) -> list[int]:
        return [getattr(p, "_version", 0) for p in self.param_groups[0]["params"][:4]]
