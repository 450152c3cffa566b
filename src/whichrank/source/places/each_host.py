"""Commands that units and programs run on every host, with signs that become another text on each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from whichrank.model.evidence import Ref
from whichrank.records.launches import Launch, Told
from whichrank.records.settings import UNKNOWN

_OPTION = re.compile(r"--(?:(master|rdzv)[-_](addr|endpoint|id|port)|main[-_]process[-_](ip|port))")
_ADDRESSES = frozenset({"addr", "endpoint", "ip"})


def tell(
    launch: Launch,
    words: Sequence[tuple[str, int]],
    own: re.Pattern[str],
    other: re.Pattern[str],
    ref: Callable[[int], Ref],
) -> None:
    """Words: of the command, with their lines. Own: what stands for the host's name; other: for anything else that
    differs from host to host."""
    rank = launch.rank.text if launch.rank is not None else UNKNOWN
    launch.everywhere = launch.everywhere or (launch.several and not rank.isdecimal() and not launch.host)
    for at, (word, line) in enumerate(words):
        name, equals, text = word.partition("=")
        option = _OPTION.fullmatch(name)
        if option is None:
            continue
        text = text if equals else words[at + 1][0] if at + 1 < len(words) else ""
        told = Told(name, text, ref(line))
        if (option[2] or option[3]) in _ADDRESSES:
            launch.itself = (*launch.itself, told) if own.match(text) else launch.itself
        elif not launch.drawn and (own.search(text) or other.search(text)):
            launch.drawn = (told,)
