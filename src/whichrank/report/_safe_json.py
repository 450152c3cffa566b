"""JSON that a terminal can show."""

from __future__ import annotations

import re

# What `_words.safe` spells out; JSON escapes the controls below 32 itself. Compiled only for a document that needs it.
_UNSAFE = "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\U000e0000-\U000e007f]"


def safe_json(document: str) -> str:
    """Invisible signs and tags escaped: only strings hold them, and there an escape means the same."""
    if document.isascii() and "\x7f" not in document:
        return document  # most documents, and those of large jobs have megabytes
    return re.sub(_UNSAFE, _escaped, document)


def _escaped(match: re.Match[str]) -> str:
    pairs = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))
