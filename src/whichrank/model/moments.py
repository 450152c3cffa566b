"""Times as the reports write them."""

from __future__ import annotations

from datetime import datetime, timezone


def rfc3339(moment: datetime) -> str:
    """A moment in UTC, to the millisecond."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_ns(nanoseconds: int) -> str | None:
    """Nanoseconds since 1970 in UTC; None where there is no time."""
    return rfc3339(datetime.fromtimestamp(nanoseconds / 1e9, timezone.utc)) if nanoseconds > 0 else None
