"""Connections to many peers at once, and what became of each: the kernel's answer tells a firewall from a dead port."""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from typing import Any

from whichrank.evidence.probes.between.server import GREETING, family
from whichrank.evidence.probes.names import resolve, usual

AT_ONCE = 256
_OUTCOMES = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "rejected",
    errno.EACCES: "rejected",
    errno.EPERM: "local",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "dropped",
    errno.EADDRNOTAVAIL: "local",
    errno.EMFILE: "local",
}
_TCP_INFO, _RTT_AT = 11, 68
_ARP_S = 0.5
"""EHOSTUNREACH within this time is a firewall's or router's word; later it means that nobody answered ARP."""


def attempts(targets: list[dict[str, Any]], token: str, limit_s: float) -> list[dict[str, Any]]:
    """For each target (`name`, `port`): `outcome`, `detail`, `address`, and `rtt_us` of one that is connected."""
    found: list[dict[str, Any]] = []
    for start in range(0, len(targets), AT_ONCE):
        found += _batch(targets[start : start + AT_ONCE], token, limit_s)
    return found


def _batch(targets: list[dict[str, Any]], token: str, limit_s: float) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = [{} for _ in targets]
    names: dict[str, list[str]] = {}
    selector = selectors.DefaultSelector()
    began = time.monotonic()
    for number, target in enumerate(targets):
        name = str(target["name"])
        if name not in names:
            names[name] = resolve(name)
        address = usual(names[name])
        if not address:
            results[number] = {"outcome": "unresolved", "detail": f"{name} does not resolve", "address": ""}
            continue
        one = socket.socket(family(address), socket.SOCK_STREAM)
        one.setblocking(False)
        code = one.connect_ex((address, int(target["port"])))
        results[number] = {"address": address}
        if code not in (0, errno.EINPROGRESS):
            results[number] |= _failed(code, 0.0)
            one.close()
            continue
        selector.register(one, selectors.EVENT_WRITE, number)
    _wait(selector, results, token, began + limit_s, began)
    for key in list(selector.get_map().values()):
        results[key.data] |= _silent(results[key.data], limit_s)
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    return results


def _wait(
    selector: selectors.BaseSelector, results: list[dict[str, Any]], token: str, deadline: float, began: float
) -> None:
    while selector.get_map() and (left := deadline - time.monotonic()) > 0:
        for key, events in selector.select(left):
            one: socket.socket = key.fileobj  # type: ignore[assignment]
            result = results[key.data]
            took = time.monotonic() - began
            if events & selectors.EVENT_WRITE:
                code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    result |= {"connected": True, "rtt_us": _round_trip_us(one)}
                    selector.modify(one, selectors.EVENT_READ, key.data)
                    continue
                result |= _failed(code, took)
            else:
                result |= _greeted(one, token)
            selector.unregister(one)
            one.close()


def _round_trip_us(one: socket.socket) -> int | None:
    """As the kernel measured it in the handshake."""
    try:
        return int(struct.unpack_from("I", one.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RTT_AT + 4), _RTT_AT)[0])
    except (OSError, struct.error):
        return None


def _greeted(one: socket.socket, token: str) -> dict[str, Any]:
    try:
        said = one.recv(256)
    except OSError as error:
        return {"outcome": "broken", "detail": f"connected, then {error.strerror}"}
    if said.strip() == GREETING + token.encode():
        return {"outcome": "connected", "detail": ""}
    return {"outcome": "other service", "detail": "something else listens there"}


def _silent(result: dict[str, Any], limit_s: float) -> dict[str, Any]:
    if result.get("connected"):
        return {"outcome": "mute", "detail": f"connected, but nothing came back within {limit_s:.0f} s"}
    return {"outcome": "dropped", "detail": f"no answer within {limit_s:.0f} s"}


def _failed(code: int, took: float) -> dict[str, Any]:
    outcome = _OUTCOMES.get(code, "failed")
    if code == errno.EHOSTUNREACH and took > _ARP_S:
        outcome = "unreachable"
    return {"outcome": outcome, "detail": f"{errno.errorcode.get(code, code)} after {took:.2f} s"}
