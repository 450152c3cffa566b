"""The tensors of one optimizer, cut into pieces, and the order in which the pieces are looked at.

Which piece is due when depends on its name and size alone, so that replicas look at the same piece at the same step
even where one of them holds more tensors than another.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from math import gcd
from typing import Any, NamedTuple

from whichrank.worker.guard import checksum
from whichrank.worker.guard.models import Replicas, local

SLICE_BYTES = {"cpu": 256 << 10}
SLICE_BYTES_DEVICE = 16 << 20
"""What is summed at one look: on a CPU about 0.1 ms, on a GPU far less."""
FEWEST, MOST = 3, 511
FROZEN, BUFFER = "frozen", "buffer"
"""Kinds: a parameter that no optimizer steps, and what a module keeps beside its parameters."""
MOVED = "--------"
"""Stands for the sum of a buffer that code has changed: it is nobody's business."""


class Unit(NamedTuple):
    """One tensor that replicas should have in common."""

    name: str
    kind: str
    """"parameter", "frozen", "buffer", or the key of the optimizer's state."""
    replicas: str
    size: int
    owner: Any
    """The tensor itself; for state of the optimizer, the parameter that it belongs to."""
    optimizer: Any = None

    @property
    def tensor(self) -> Any:
        """As it is now: optimizers may put new tensors in the place of old ones."""
        return local(self.owner if self.optimizer is None else self.optimizer.state[self.owner][self.kind])

    def row(self) -> list[Any]:
        tensor = self.tensor
        return [self.name, self.kind, self.replicas, list(tensor.shape), str(tensor.dtype)[6:]]


class Layout:
    """Pieces by part; made anew when tensors come, go or move."""

    def __init__(
        self, optimizer: Any, names: dict[int, str], replicas: Replicas, buffers: list[tuple[str, Any]],
        frozen: list[Any],
    ) -> None:  # fmt: skip
        self.units = [*_units(optimizer, names, replicas, buffers), *_frozen(optimizer, names, replicas, frozen)]
        size = sum(unit.size for unit in self.units)
        device = next((unit.tensor.device.type for unit in self.units if unit.kind == "parameter"), "cpu")
        most = SLICE_BYTES.get(device, SLICE_BYTES_DEVICE)
        self.bytes = size
        self.parts = max(FEWEST, min(MOST, -(-size // most)) | 1)  # odd: see `due`
        self.pieces: list[list[tuple[int, int]]] = [[] for _ in range(self.parts)]
        """By part: unit and number of the piece within it."""
        for index, unit in enumerate(self.units):
            first = binascii.crc32(f"{unit.name}/{unit.kind}".encode())
            for piece in range(-(-unit.size // checksum.PIECE_BYTES)):
                self.pieces[(first + piece) % self.parts].append((index, piece))
        self._versions: dict[int, int] = {}
        text = "|".join(f"{u.name},{u.kind},{u.replicas},{u.size}" for u in self.units)
        self.id = f"{binascii.crc32(text.encode()):08x}"

    def record(self) -> dict[str, Any]:
        return {"t": "layout", "id": self.id, "parts": self.parts, "bytes": self.bytes,
                "units": [unit.row() for unit in self.units], "pieces": self.pieces}  # fmt: skip

    def due(self, step: int, every: int) -> int:
        """The part to look at: the same at the same step however often one looks, so that two runs can be compared.

        Intervals are powers of two and parts an odd number: all have had their turn after as many looks as parts."""
        return (step if gcd(every, self.parts) == 1 else step // every) % self.parts

    def of_part(self, part: int) -> list[tuple[Any, bool]]:
        """The pieces that are due, flat, each with whether it counts."""
        return [(self._piece(index, piece), self._counts(index)) for index, piece in self.pieces[part]]

    def everything(self) -> list[tuple[int, Any]]:
        """All pieces of parameters and of the optimizer's state: index of the unit, and the piece."""
        return [
            (index, self._piece(index, piece))
            for index, unit in enumerate(self.units)
            if unit.kind != BUFFER
            for piece in range(-(-unit.size // checksum.PIECE_BYTES))
        ]

    def _piece(self, index: int, piece: int) -> Any:
        line: Any = checksum.flat(self.units[index].tensor)
        size = checksum.PIECE_BYTES // line.element_size()
        return line[piece * size : (piece + 1) * size]

    def _counts(self, index: int) -> bool:
        """A buffer counts from the second look on, and while no code writes to it."""
        unit = self.units[index]
        if unit.kind != BUFFER:
            return True
        version = unit.tensor._version  # noqa: SLF001 - how torch itself tells that a tensor was written to
        before, self._versions[index] = self._versions.get(index), version
        return before == version


def _units(optimizer: Any, names: dict[int, str], replicas: Replicas, buffers: list[tuple[str, Any]]) -> Iterator[Unit]:
    taken: set[str] = set()
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            name = names.get(id(parameter), f"group {number} parameter {index}")
            name = name if name not in taken else f"{name} (group {number}.{index})"
            taken.add(name)
            who = replicas.of(parameter)
            unit = _unit(name, "parameter", who, parameter)
            if unit is not None:
                yield unit
            state: Any = optimizer.state.get(parameter) if parameter in optimizer.state else None
            for key in sorted(state) if isinstance(state, dict) else ():
                unit = _unit(name, key, who, parameter, optimizer) if hasattr(state[key], "data_ptr") else None
                if unit is not None:
                    yield unit
    for name, buffer in buffers:
        unit = _unit(name, BUFFER, "", buffer)
        if unit is not None:
            yield unit


def _frozen(optimizer: Any, names: dict[int, str], replicas: Replicas, frozen: list[Any]) -> Iterator[Unit]:
    taken = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for parameter in frozen:
        if id(parameter) not in taken:
            taken.add(id(parameter))
            unit = _unit(names.get(id(parameter), ""), FROZEN, replicas.of(parameter), parameter)
            if unit is not None and unit.name:
                yield unit


def _unit(name: str, kind: str, who: str, owner: Any, optimizer: Any = None) -> Unit | None:
    line = checksum.flat(local(owner if optimizer is None else optimizer.state[owner][kind]))
    if line is None or not line.numel():
        return None
    return Unit(name, kind, who, line.numel() * line.element_size(), owner, optimizer)
