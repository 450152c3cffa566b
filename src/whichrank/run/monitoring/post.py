"""One HTTP request, bounded in time, that never tells its address."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

_AGAIN = (408, 425, 429)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the news to an address that nobody gave."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def failure_of(request: urllib.request.Request, patience_s: float) -> tuple[str, bool]:
    """Why a request failed (empty: it did not), and whether another try may help.

    Texts of exceptions can hold the address, which is a secret: they are not told.
    """
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=patience_s):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}", error.code >= 500 or error.code in _AGAIN
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        strerror = reason.strerror if isinstance(reason, OSError) else None
        return strerror or type(reason).__name__, True
    except Exception as error:  # noqa: BLE001 - http.client's own errors, for one
        return type(error).__name__, False
