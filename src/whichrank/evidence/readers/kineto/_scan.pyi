from collections.abc import Callable
from typing import Any

VERSION: int

def memory() -> Any: ...
def scan(
    memory: Any, data: bytes, size: int, exact: bool, number: Callable[[int, bytes, bytes], int]
) -> tuple[int, tuple[bytes, ...], list[tuple[int, bytes]], list[bytes]] | None: ...
