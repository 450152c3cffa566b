"""nccl.conf: one NAME=VALUE per line, read by NCCL without trimming, unquoting or expanding anything."""

from __future__ import annotations

import re

from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Lost, SettingsFile

KIND = "nccl.conf"
QUOTE_LIMIT = 300
# setEnvFile in src/misc/param.cc: everything before the first "=" is the name, everything after it the value.
_LINE_LIMIT = 1023


def read(text: str, label: str, scope: str = "") -> SettingsFile:
    """What NCCL takes from such a file, and what it takes otherwise than it was meant."""
    out = SettingsFile.empty(label, KIND)
    for number, written in enumerate(text.split("\n"), 1):
        line = written.removesuffix("\r")
        name, equals, value = line.partition("=")
        if not equals or line.startswith("#"):
            continue
        ref = Ref(label, f"line {number}", line[:QUOTE_LIMIT])
        meant = re.sub(r"^\s*(?:export\s+|set\s+)?", "", name).strip()
        if meant.startswith("#"):
            continue
        if name != meant:
            why = f"NCCL takes the whole text before '=' for the name, so this sets a variable called '{name}'"
            out.lost.append(Lost(meant, ref, why, f"Write: {meant}={value.strip()}"))
            continue
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        if quoted or value != value.strip() or "$" in value or re.search(r"\s#", value):
            why = f"NCCL takes the value as it stands, quotes, spaces, comments and $ included: {value!r}"
            out.lost.append(Lost(name, ref, why, f"Write: {name}={value.partition(' #')[0].strip().strip(chr(34))}"))
        stripped = value.strip().strip("\"'")
        out.assignments.append(Assignment(name, stripped[:_LINE_LIMIT], ref, scope or label, "conf"))
    return out
