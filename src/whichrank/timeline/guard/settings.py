"""Learning rates and other numbers of optimizers, samplers, and what ranks started with: all must say the same."""

from __future__ import annotations

from typing import Any

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Wrong, minority, spread

SWITCHES = ("deterministic algorithms", "float32 matmul precision", "default dtype")
MOST_PENDING = 4096


class Settings:
    def __init__(self, world: int) -> None:
        self.world = world
        self.found: list[Wrong] = []
        self.models: dict[int, dict[int, str]] = {}
        """By optimizer and rank: the names of its tensors, as one text."""
        self._now: dict[tuple[int, int], dict[str, Any]] = {}
        self._pending: dict[tuple[int, int], dict[int, tuple[GuardFile, int, dict[str, Any]]]] = {}
        self._told: set[tuple[int, str]] = set()
        self._samplers: dict[tuple[Any, ...], dict[int, tuple[GuardFile, int, dict[str, Any]]]] = {}
        self._turns: dict[tuple[int, str], int] = {}
        self._starts: dict[int, tuple[GuardFile, int, dict[str, Any]]] = {}
        self._places: dict[int, str] = {}

    def gradient(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        now = self._now.setdefault((file.rank, said["o"]), {})
        for key in ("lr", "h", "hs"):
            if key in said:
                now[key] = said[key]
                now["line"] = note.line
        waiting = self._pending.setdefault((said["o"], said["s"]), {})
        waiting[file.rank] = (file, now.get("line", note.line), dict(now))
        if len(waiting) == self.world:
            del self._pending[said["o"], said["s"]]
            self._compare(said["o"], said["s"], waiting)
        elif len(self._pending) > MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))

    def scheduler(self, file: GuardFile, note: GuardNote) -> None:
        self._places.setdefault(file.rank, str(note.said["at"])[:400])

    def _compare(self, optimizer: int, step: int, told: dict[int, tuple[GuardFile, int, dict[str, Any]]]) -> None:
        models = self.models.get(optimizer, {})
        if len({models.get(rank) for rank in told}) > 1:
            return  # stages of a pipeline: different models may have different rates
        for key, kind, what in (("lr", "rate", "learning rate"), ("h", "setting", "settings of the optimizer")):
            values = {rank: str(now.get(key)) for rank, (_, _, now) in told.items()}
            if len(set(values.values())) < 2 or (optimizer, key) in self._told:
                continue
            self._told.add((optimizer, key))
            odd = minority(values)
            shown = {rank: _shown(now, key) for rank, (_, _, now) in told.items()}
            refs = [file.ref(line, f"{what} {shown[r]} at step {step}") for r, (file, line, _) in told.items()]
            place = next((self._places[rank] for rank in odd if rank in self._places), "")
            self.found.append(
                Wrong(kind, step, odd, tuple(sorted(told)), "", what, step - 1 if step else None, shown,  # type: ignore[arg-type]
                      spread(refs, odd), {"place": place})
            )  # fmt: skip

    # -- samplers

    def sampler(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        place = str(said.get("at", ""))[:400]
        turn = self._turns.get((file.rank, place), 0)
        self._turns[file.rank, place] = turn + 1
        pile = self._samplers.setdefault((place, turn), {})
        pile[file.rank] = (file, note.line, said)
        if len(pile) == self.world:
            self._judge_sampler(place, turn, pile)

    def _judge_sampler(self, place: str, turn: int, pile: dict[int, tuple[GuardFile, int, dict[str, Any]]]) -> None:
        if ("sampler", place) in self._told or any(s.get("num_replicas") != self.world for _, _, s in pile.values()):  # type: ignore[comparison-overlap]
            return
        for key in ("seed", "epoch", "shuffle", "drop_last", "rank"):
            values = {rank: str(said.get(key)) for rank, (_, _, said) in pile.items()}
            if key == "rank":
                if len(set(values.values())) == self.world:
                    continue
                odd: tuple[int, ...] = tuple(r for r, value in values.items() if value != str(r))
                odd = odd if len(odd) * 2 <= self.world else ()
            else:
                if len(set(values.values())) < 2 or (key in ("seed", "epoch") and _unshuffled(pile)):
                    continue
                odd = minority(values)
            self._told.add(("sampler", place))  # type: ignore[arg-type]
            refs = [file.ref(line, f"DistributedSampler {key} {values[r]}") for r, (file, line, _) in pile.items()]
            step = max((s for _, _, said in pile.values() if isinstance(s := said.get("s"), int)), default=0)
            self.found.append(Wrong("sampler", step, odd, tuple(sorted(pile)), "", key, None, values, spread(refs, odd),
                                    {"turn": turn, "place": place}))  # fmt: skip
            return

    # -- the start

    def start(self, file: GuardFile, note: GuardNote) -> None:
        self._starts[file.rank] = (file, note.line, note.said)
        if len(self._starts) == self.world:
            self._judge_start()

    def _judge_start(self) -> None:
        starts = self._starts
        for what, aspect, names in _common(starts):
            for name in names:
                values = {rank: str(_part(said, aspect).get(name)) for rank, (_, _, said) in starts.items()}
                if len(set(values.values())) < 2:
                    continue
                odd = minority(values)
                refs = [file.ref(line, f"{what} {name}: {values[r]}") for r, (file, line, _) in starts.items()]
                self.found.append(Wrong("launch", -1, odd, tuple(sorted(starts)), str(name)[:200], what, None, values,
                                        spread(refs, odd)))  # fmt: skip


def _common(starts: dict[int, tuple[GuardFile, int, dict[str, Any]]]) -> list[tuple[str, str, list[str]]]:
    """What is compared: files of code that all have, versions, and switches that change results."""
    sources = [set(_part(said, "source")) for _, _, said in starts.values()]
    versions = [set(_part(said, "versions")) for _, _, said in starts.values()]
    return [
        ("code", "source", sorted(set.intersection(*sources))),
        ("version", "versions", sorted(set.intersection(*versions))),
        ("setting", "settings", list(SWITCHES)),
    ]


def _part(said: dict[str, Any], key: str) -> dict[str, Any]:
    value = said.get(key)
    return value if isinstance(value, dict) else {}


def _unshuffled(pile: dict[int, tuple[GuardFile, int, dict[str, Any]]]) -> bool:
    return not any(said.get("shuffle") for _, _, said in pile.values())


def _shown(now: dict[str, Any], key: str) -> str:
    if key == "h":
        return str(now.get("hs"))[:300]
    rates = now.get("lr")
    return (
        ", ".join(f"{r:.9g}" if isinstance(r, (int, float)) else "?" for r in rates[:4])
        if isinstance(rates, list)
        else "?"
    )
