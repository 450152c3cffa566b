"""How programs and the scripts that watch them say that a job is too slow."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"(?i)\b(?:slow(?:er|ly)?(?! (?:tokenizer|(?:image )?processor|path|or even)\b)|slo"
    r"|below (?:the )?(?:reference|baseline|target|budget|floor|minimum)"
    r"|(?:above|over) budget|\d{1,2}(?:\.\d+)? ?% of (?:the )?(?:reference|expected|target|baseline|usual)"
    r"|the (?:floor|minimum|target) is|why only \d+|should have (?:given|done|made|taken|reached))\b"
    r"|\b(?:Too|Job)Slow\b|\bSlow(?:Job|Run|Step|Training)\b"
    r"|\b(?:good_?put|throughput|speed|mfu|tps)(?:[ _]?(?:is )?too[ _]?low|[ _]?below)\w{0,12}\b"
    r"|\b(?:good_?put|throughput|tps|tok(?:en)?s?/s(?:ec)?|samples/s(?:ec)?|it/s|img/s|mfu|tflops)\b[^\n<]{0,24}< ?"
    r"(?:the )?(?:floor|min\w{0,4}|target|threshold|expected|\d)"
)


def complains(text: str) -> bool:
    """Whether a line of output says that the job is too slow."""
    return _WORDS.search(text) is not None
