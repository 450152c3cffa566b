from collections.abc import Mapping

VERSION: int

def decode(
    data: bytes,
    marker: str,
    ints: tuple[str, ...],
    reals: tuple[str, ...],
    skipped: tuple[str, ...],
    parts: tuple[str, ...],
    known: Mapping[bytes, object],
) -> tuple[dict[object, object], list[tuple[object, dict[object, object]]], bytes, bytes, bool] | None: ...
