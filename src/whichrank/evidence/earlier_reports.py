"""Reports that whichrank wrote earlier: they repeat a verdict and are no evidence for one. Known by what is in them; a
person's own `report.md` is evidence."""

from __future__ import annotations

import re

_WRITTEN = re.compile(
    rb'\{\s{0,8}"schema_version": \d{1,3},\s{0,8}"tool": \{\s{0,8}"name": "whichrank"'
    rb"|## [^\n]{1,1000}\n\n(?:[A-Z]{4,12} \xc2\xb7 [a-z0-9-]{3,60}(?: \xc2\xb7|\n)|UNKNOWN\b|HEALTHY\b)"
    rb"|<!doctype html>\n[^\0]{0,600}<title>(?:HANG|CRASH|SLOW|CORRUPTION|CONFIG|HEALTHY|UNKNOWN)(?::|<)"
)


def is_earlier_report(head: bytes) -> bool:
    """Whether a file begins as a report in JSON, Markdown or HTML."""
    return _WRITTEN.match(head) is not None
