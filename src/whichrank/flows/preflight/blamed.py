"""Whom a verdict blames, and where its ranks ran: what it takes to follow a stall to a cable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from whichrank.flows.preflight.topology import Map, cable_of, cables_of, place
from whichrank.model.errors import UsageError
from whichrank.records.topology import RankPlace


class Blamed(Struct, frozen=True):
    """The culprits of a verdict, or those that could be."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    adapters: tuple[tuple[str, str], ...] = ()
    """Host and device at the ends of the links that are blamed."""
    at: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Rank -> its host, and its GPU there, of all ranks that the verdict knows."""

    def words(self) -> str:
        ranks = f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}" if self.ranks else ""
        return " and ".join(part for part in (ranks, *self.hosts) if part) or "no rank and no host"

    def places(self, found: Map, others: Sequence[RankPlace]) -> list[RankPlace]:
        """The ranks that are blamed, where the verdict says that they ran; else as hosts were listed."""
        listed = {one.rank: one for one in others}
        told = [place(found, rank, *self.at[rank]) if rank in self.at else listed.get(rank) for rank in self.ranks]
        return [one for one in told if one is not None]

    def cables(self, found: Map) -> list[str]:
        """Of the links and hosts that are blamed; of hosts whose ranks are followed already, nothing more."""
        told = []
        for host, device in self.adapters:
            cable = cable_of(found, host, device)
            told.append(f"{host} → {device} → {cable.b if cable else 'no cable is known'}")
        followed = {host for host, _ in self.adapters} | {self.at[rank][0] for rank in self.ranks if rank in self.at}
        return told + [line for host in self.hosts if host not in followed for line in cables_of(found, host)]


def read(path: Path) -> Blamed:
    """Out of `verdict.json`, or of what `diagnose --format json` printed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        culprits = document["verdict"]["culprits"]
        ranks = tuple(int(rank) for rank in culprits["ranks"] or culprits.get("candidates") or [])
        ends = [end for link in culprits.get("links") or [] for end in (link["a"], link["b"])]
        adapters = tuple((str(end["host"]), str(end["device"])) for end in ends if end.get("device"))
        return Blamed(ranks, tuple(map(str, culprits.get("hosts") or [])), adapters, _at(document.get("ranks") or []))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} holds no verdict", "Give what whichrank diagnose --format json wrote.") from error


def _at(rows: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, int]]:
    """Ranks of a host fill its GPUs in order, where their GPUs are not known or all look the same to them."""
    by_host: dict[str, list[tuple[int, Any]]] = {}
    for row in rows:
        if row.get("host"):
            by_host.setdefault(str(row["host"]), []).append((int(row["rank"]), row.get("gpu")))
    found: dict[int, tuple[str, int]] = {}
    for host, ranks in by_host.items():
        gpus = [gpu for _, gpu in ranks]
        told = all(isinstance(gpu, int) for gpu in gpus) and len(set(gpus)) == len(gpus)
        for local, (rank, gpu) in enumerate(sorted(ranks, key=lambda one: one[0])):
            found[rank] = (host, gpu if told else local)
    return found
