"""The keys and values of the stores, and who waits for which key."""

from __future__ import annotations

from typing import Any

Answer = tuple[dict[str, Any], bytes]
Who = tuple[int, int]


class Keys:
    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}
        self.waiting: dict[Who, tuple[str, str, str]] = {}

    def ask(self, header: dict[str, Any], payload: bytes) -> Answer | None:
        """The answer to one operation; None where it has to wait for its key."""
        op, place = header["op"], (header["s"], header["key"])
        values = self.values
        if op in ("get", "wait"):
            return None if place not in values else ({}, values[place] if op == "get" else b"")
        if op == "set":
            values[place] = payload
        elif op == "append":
            values[place] = values.get(place, b"") + payload
        elif op == "add":
            total = int(values.get(place, b"0") or b"0") + int(header["amount"])
            values[place] = str(total).encode()
            return {"value": total}, b""
        elif op == "compare_set":
            return {}, self._compare(place, payload[: header["cut"]], payload[header["cut"] :])
        elif op == "check":
            return {"value": place in values}, b""
        elif op == "delete":
            return {"value": values.pop(place, None) is not None}, b""
        elif op == "count":
            return {"value": sum(1 for store, _ in values if store == header["s"])}, b""
        return {}, b""

    def _compare(self, place: tuple[str, str], expected: bytes, desired: bytes) -> bytes:
        present = self.values.get(place)
        if present == expected or (present is None and not expected):
            self.values[place] = desired
        return self.values.get(place, expected)

    def wait(self, header: dict[str, Any], who: Who) -> None:
        self.waiting[who] = (header["op"], header["s"], header["key"])

    def forget(self, who: Who) -> None:
        self.waiting.pop(who, None)

    def ready(self) -> list[tuple[int, int, bytes]]:
        """Those whose key has come."""
        done = []
        for who, (op, store, key) in list(self.waiting.items()):
            if (store, key) in self.values:
                del self.waiting[who]
                done.append((*who, self.values[store, key] if op == "get" else b""))
        return done
