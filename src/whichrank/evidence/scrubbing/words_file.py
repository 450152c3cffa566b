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
        new = words._replace(
            operation=voice.value(words.operation),
            place=voice.value(words.place),
            error=voice.value(words.error),
            work=voice.value(words.work),
        )
        target.write(layout.pack(new))
