"""torch's key-value store, kept by the referee: it knows who waits for which key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from whichrank.worker.rehearsal import client


class RehearsedStore(dist.Store):  # type: ignore[misc]
    """Stands for TCPStore, FileStore and HashStore; stores of one name are one store."""

    def __init__(self, name: str = "default", timeout_s: float | None = None) -> None:
        super().__init__()
        self.store, self.patience = name, timeout_s

    def _ask(self, op: str, key: str = "", payload: bytes = b"", **facts: Any) -> tuple[dict[str, Any], bytearray]:
        header = {"t": "store", "s": self.store, "op": op, "key": key, "at": client.stack(), **facts}
        answer, data = client.connect().ask(header, [memoryview(payload)] if payload else [])
        if answer.get("err"):
            raise dist.DistStoreError(answer["err"])
        return answer, data

    def set(self, key: str, value: Any) -> None:
        self._ask("set", key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return bytes(self._ask("get", key, patience=self.patience)[1])

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key, amount=amount)[0]["value"])

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        old, new = (v.encode() if isinstance(v, str) else bytes(v) for v in (expected, desired))
        return bytes(self._ask("compare_set", key, old + new, cut=len(old))[1])

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        patience = timeout.total_seconds() if timeout is not None else self.patience
        for key in keys:
            self._ask("wait", key, patience=patience)

    def check(self, keys: list[str]) -> bool:
        return all(self._ask("check", key)[0]["value"] for key in keys)

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete", key)[0]["value"])

    def num_keys(self) -> int:
        return int(self._ask("count")[0]["value"])

    def append(self, key: str, value: Any) -> None:
        self._ask("append", key, value.encode() if isinstance(value, str) else bytes(value))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        self.patience = timeout.total_seconds()

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.patience or 1800)

    def clone(self) -> RehearsedStore:
        return RehearsedStore(self.store, self.patience)


def tcp(host_name: str = "localhost", port: int = 0, *_: Any, **options: Any) -> RehearsedStore:
    """Called as torch.distributed.TCPStore."""
    patience = options.get("timeout")
    return RehearsedStore(f"tcp {host_name}:{port}", patience.total_seconds() if patience else None)


def file(file_name: str, *_: Any) -> RehearsedStore:
    """Called as torch.distributed.FileStore."""
    return RehearsedStore(f"file {file_name}")
