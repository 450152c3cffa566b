"""The process groups of a dump: who they are by pg_config, how far they got by pg_status."""

from __future__ import annotations

import re

from msgspec import Struct

from whichrank.evidence.readers.flight_recorder.calls import integer, text
from whichrank.records.dump import GroupStatus, LocalGroup

_MAX_MEMBERS = 1_000_000
_MAX_GROUPS = 32_000
_MAX_TEXT = 8 * _MAX_MEMBERS
_KEPT_TEXT = 16 << 20  # bytes of lists that are remembered: the ranks of one job write the same ones
_LIST = re.compile(r"[0-9, ]*")


class _Config(Struct, frozen=True):
    by_name: dict[str, tuple[str, tuple[int, ...] | None]]
    by_id: dict[int, tuple[int, ...] | None]


def local_groups(used: list[tuple[int, str, str]], pg_config: object) -> list[LocalGroup]:
    """The groups that entries use, in their order, then those that only pg_config names."""
    config = _config(pg_config)
    # A name can come back (split_group, a second init_process_group); pg_config keeps the newest.
    newest: dict[str, int] = {}
    for pg_id, name, _ in used:
        newest[name] = max(pg_id, newest.get(name, pg_id))
    groups = []
    for pg_id, name, desc in used:
        members = None
        if name in config.by_name:
            configured, ranks = config.by_name[name]
            if configured == desc and newest[name] == pg_id:
                members = ranks
        elif not name:
            members = config.by_id.get(pg_id)
        groups.append(LocalGroup(pg_id, name, desc, members))
    named, numbered = {name for _, name, _ in used}, {pg_id for pg_id, _, _ in used}
    groups += [LocalGroup(-1, name, *info) for name, info in config.by_name.items() if name not in named]
    groups += [LocalGroup(pg_id, "", "", ranks) for pg_id, ranks in config.by_id.items() if pg_id not in numbered]
    return groups


def status(pg_status: object) -> dict[int, GroupStatus]:
    """pg_status by group number; JSON writes all numbers as strings."""
    found: dict[int, GroupStatus] = {}
    if not isinstance(pg_status, dict):
        return found
    for key, value in pg_status.items():
        pg_id = integer(key, -1)
        if pg_id >= 0 and isinstance(value, dict) and len(found) < _MAX_GROUPS:
            found[pg_id] = GroupStatus(
                enqueued=integer(value.get("last_enqueued_collective"), -1),
                started=integer(value.get("last_started_collective"), -1),
                completed=integer(value.get("last_completed_collective"), -1),
            )
    return found


def _config(pg_config: object) -> _Config:
    config = _Config({}, {})
    if not isinstance(pg_config, dict):
        return config
    for key, value in list(pg_config.items())[:_MAX_GROUPS]:
        if isinstance(value, dict):
            name = value.get("name", key)
            # Gloo's single nameless entry has the ranks of some group, or none.
            if isinstance(name, str) and name:
                config.by_name[name] = (text(value.get("desc")), _members(value.get("ranks")))
        elif isinstance(value, list) and integer(key, -1) >= 0:  # dump version 1.x
            config.by_id[integer(key)] = _members(value)
    return config


def _members(ranks: object) -> tuple[int, ...] | None:
    """Global ranks out of "[0, 1, 2]" or a list; None for what can't be a group."""
    if isinstance(ranks, str):
        return _MEMBERS.of(ranks)
    if not isinstance(ranks, (list, tuple)) or not 0 < len(ranks) <= _MAX_MEMBERS:
        return None
    if any(type(rank) is not int or not 0 <= rank < _MAX_MEMBERS for rank in ranks):
        return None
    return tuple(ranks)


def _parsed(ranks: str) -> tuple[int, ...] | None:
    inside = ranks.strip().removeprefix("[").removesuffix("]")
    if len(inside) > _MAX_TEXT or not inside or not _LIST.fullmatch(inside):
        return None
    try:
        members = [int(rank) for rank in inside.split(",")]
    except ValueError:
        return None
    return _members(members)


class _Members:
    """Lists of ranks that were parsed already, so that all dumps of a job share them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...] | None] = {}
        self._room = _KEPT_TEXT
        self._longest: tuple[str, tuple[int, ...] | None] = ("", None)

    def of(self, ranks: str) -> tuple[int, ...] | None:
        """The list of all ranks is compared with the last such list: to look up 100 KB takes ten times as long."""
        text, members = self._longest
        if len(ranks) == len(text) and ranks == text:
            return members
        members = self._looked_up(ranks)
        if len(text) <= len(ranks) <= _KEPT_TEXT:
            self._longest = ranks, members
        return members

    def _looked_up(self, ranks: str) -> tuple[int, ...] | None:
        try:
            return self._known[ranks]
        except KeyError:
            members = _parsed(ranks)
        if len(ranks) > self._room:
            self._known.clear()
            self._room = _KEPT_TEXT
        if len(ranks) <= self._room:
            self._room -= len(ranks)
            self._known[ranks] = members
        return members


_MEMBERS = _Members()
