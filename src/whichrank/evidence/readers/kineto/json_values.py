"""One value of JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def json_value(text: bytes) -> Any:
    """The value; what msgspec refuses (NaN, which Python programs write) is read by Python's own, slower decoder."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        import json

        return json.loads(text)
