"""Random numbers of ranks that work on the same batch, as tensor parallel ranks do: they should draw the same.

Nothing of torch says who should. It is learned: ranks that are fed the same batch and whose random state was the same
at several looks, while it changed, share it on purpose. Replicas that have data of their own don't.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Wrong, minority, spread

LEARNED_AFTER = 6
"""Looks at which the states of ranks were the same and had changed."""
FOR_GOOD = 2
"""Looks in a row at which they differ: one may fall into the middle of a step."""
MOST_PENDING = 4096

_Told = dict[int, tuple[GuardFile, GuardNote]]


class _History(Struct):
    last: str = ""
    looks: int = 0
    good: int = -1
    first: tuple[int, _Told] | None = None
    """The first look at which they differed."""
    apart: int = 0


class RandomStates:
    def __init__(self, world: int) -> None:
        self.world = world
        self.found: list[Wrong] = []
        self._pending: dict[tuple[int, int], _Told] = {}
        self._known: dict[tuple[int, tuple[int, ...]], _History] = {}

    def gradient(self, file: GuardFile, note: GuardNote, replicas: Sequence[int]) -> None:
        """What a rank says of one step; `replicas` have batches of their own."""
        said = note.said
        if not isinstance(said.get("r"), str) or not isinstance(said.get("b"), list):
            return
        waiting = self._pending.setdefault((said["o"], said["s"]), {})
        waiting[file.rank] = (file, note)
        if len(waiting) == self.world:
            del self._pending[said["o"], said["s"]]
            self._compare(said["o"], said["s"], waiting, replicas)
        elif len(self._pending) > MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))

    def _compare(self, optimizer: int, step: int, told: _Told, replicas: Sequence[int]) -> None:
        sides: dict[tuple[str, ...], list[int]] = {}
        for rank, (_, note) in sorted(told.items()):
            sides.setdefault(tuple(map(str, note.said["b"])), []).append(rank)
        for ranks in sides.values():
            if len(ranks) > 1 and len(set(ranks) & set(replicas)) < 2:
                self._look(optimizer, step, tuple(ranks), told)

    def _look(self, optimizer: int, step: int, ranks: tuple[int, ...], told: _Told) -> None:
        known = self._known.setdefault((optimizer, ranks), _History())
        states = {rank: str(told[rank][1].said["r"]) for rank in ranks}
        if len(set(states.values())) == 1:
            state = next(iter(states.values()))
            known.looks += bool(known.last) and state != known.last
            known.last, known.good, known.apart, known.first = state, step, 0, None
            return
        known.apart += 1
        known.first = known.first or (step, told)
        if known.apart == FOR_GOOD and known.looks >= LEARNED_AFTER:
            at, then = known.first
            odd = minority({rank: str(then[rank][1].said["r"]) for rank in ranks})
            refs = [
                file.ref(note.line, f"random state {note.said['r']} at step {at}")
                for rank, (file, note) in then.items() if rank in ranks
            ]  # fmt: skip
            values = {rank: str(then[rank][1].said["r"]) for rank in ranks}
            self.found.append(
                Wrong("random", at, odd, ranks, "", "random state", known.good, values, spread(refs, odd), learned=True)
            )
        if known.apart >= FOR_GOOD:
            known.looks = 0
