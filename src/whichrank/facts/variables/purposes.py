"""The settings for a purpose: the rows of the table that this torch, NCCL and fabric understand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from whichrank.facts.tables import rows
from whichrank.facts.variables.environment import Version, same_setting, version
from whichrank.model.settings import Fabric, Purpose, Setting

# Where nothing is known: the newest release that was tried, and the oldest NCCL that a torch with a
# flight recorder (2.2) was built with.
ASSUMED_TORCH = "2.13"
ASSUMED_NCCL = "2.19.3"
# The NCCL that releases of torch ask for (Requires-Dist of their wheels); later ones ask for no older one.
BUNDLED_NCCL: tuple[tuple[Version, str], ...] = (
    ((2, 15), "2.30.7"), ((2, 11), "2.28.9"), ((2, 9), "2.27.5"), ((2, 8), "2.27.3"), ((2, 7), "2.26.2"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    """One row of the table."""

    purposes: frozenset[str]
    setting: Setting
    torch: tuple[Version, Version]
    nccl: tuple[Version, Version]
    """First and last version; an empty tuple for no limit."""
    fabrics: frozenset[str]

    def fits(self, purpose: str, torch: Version, nccl: Version, fabric: str) -> bool:
        return (
            purpose in self.purposes
            and _within(torch[:2], self.torch)
            and _within(nccl, self.nccl)
            and (not self.fabrics or fabric in self.fabrics)
        )


def _within(at_hand: Version, span: tuple[Version, Version]) -> bool:
    first, last = span
    return (not first or at_hand >= first) and (not last or at_hand <= last)


@cache
def _table() -> tuple[Advice, ...]:
    return tuple(
        Advice(
            frozenset(row["purposes"].split("|")),
            Setting(row["name"], row["value"], row["reason"], row["source"]),
            (version(row["torch_from"]), version(row["torch_to"])),
            (version(row["nccl_from"]), version(row["nccl_to"])),
            frozenset(row["fabrics"].split("|")) - {""},
        )
        for row in rows("variables/purposes.csv")
    )


def recommended(
    purpose: Purpose,
    *,
    out: str,
    torch: str | None = None,
    nccl: str | None = None,
    fabric: Fabric | None = None,
) -> list[Setting]:
    """What to set for this purpose; `out` is the folder that dumps and logs go to, and has to exist."""
    torch_version = version(torch or ASSUMED_TORCH)
    bundled = next((came for since, came in BUNDLED_NCCL if torch_version >= since), ASSUMED_NCCL)
    nccl_version = version(nccl or bundled)
    return [
        Setting(s.name, s.value.replace("{out}", out.rstrip("/") or "/"), s.reason, s.source)
        for advice in _table()
        if advice.fits(purpose, torch_version, nccl_version, fabric or "")
        for s in (advice.setting,)
    ]


def without_those_set(settings: list[Setting], environ: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    """The settings that the user has not made, under any name, and the names that the user has set."""
    kept = {s.name: sorted(same_setting(s.name) & environ.keys()) for s in settings}
    return [s for s in settings if not kept[s.name]], [name for names in kept.values() for name in names]
