"""Last words: two slots with checksums; the texts in them are replaced and the checksums made anew."""

from __future__ import annotations

from typing import BinaryIO

from whichrank.evidence.scrubbing.voices import Voice
from whichrank.model import last_words as layout


def rewrite(source: BinaryIO, target: BinaryIO, voice: Voice) -> None:
    """A slot that is torn becomes an empty one."""
    data = source.read(layout.SIZE)
    for at in range(0, layout.SIZE, layout.SLOT):
        words = layout.unpack(data[at : at + layout.SLOT])
        if words is None:
            target.write(bytes(layout.SLOT))
            continue
        texts = {name: voice.value(getattr(words, name)) for name in ("operation", "place", "error", "work")}
        target.write(layout.pack(words._replace(**texts)))
