VERSION: int

def decode(
    data: bytes, marker: str, ints: tuple[str, ...], reals: tuple[str, ...], unused: str
) -> tuple[dict[object, object], list[dict[object, object]], bytes, bytes] | None: ...
