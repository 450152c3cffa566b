"""What a person says to have seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.reports.prose import is_prose
from whichrank.facts.required_words import Phrases
from whichrank.records.trial import Symptom

_SEEN: dict[Symptom, Phrases] = {
    "hang": Phrases(
        r"\b(?:hangs?|hung|hanging|stuck|freez\w{1,3}|froze\w?|stall\w{0,3}|dead-?lock\w{0,3})\b",
        r"\b(?:time[sd]? ?out|timeouts?|timing out|expir(?:es?|ed|ing))\b",
        r"\bnever (?:returns?|ends?|comes? back|finish\w{0,2}|gets? past|starts?|reach\w{0,2})\b",
        r"\b(?:nothing|no output) (?:is |was )?(?:printed|happens|more)\b",
        r"\b(?:waits?|spins?|loops?|runs?|sits?|blocks?) (?:\w{1,12} )?for ?ever\b",
        r"\b(?:nothing|it (?:never|no longer)) (?:\w{1,12} )?(?:moves?|happens|advances|proceeds)\b",
        r"\b(?:sits?|stays?|stands?|just) (?:there|still|waiting|since)\b",
        r"\b(?:no|without) progress\b",
        r"\b(?:does|do|did)(?:n[’']t| not) (?:get|go|come|make it) (?:any )?(?:past|beyond|further|farther)\b",
        r"\b(?:and|then|just) stops (?:there|here|the same way|at)\b",
        r"\bwedge[sd]?\b",
        r"\b(?:hängt|bleibt stehen|steht still|завис\w{0,4}|se cuelga|se bloque\w{0,2}|bloqué\w{0,2}|se fige)\b",
        r"卡住|卡死|卡在|卡着|一直卡|挂起|挂住|无响应|超时|没有反应|不动了|停在|ハング|止まっ|止まる|固ま|応答しな"
        r"|멈[추춰춤췄]|안 풀[리림려]|풀리지 않|진행되지 않|진행이 안|무한 대기|응답이 없",
        r"\bstop(?:s|ped)? (?:but|and|while) [^.\n]{0,30}\bstill (?:running|alive|there)\b",
        r"\b(?:output|logs?|training|job|progress|run) (?:simply |just |then |suddenly )?(?:stops|stopped|stands)\b",
        r"\bnothing (?:else |more )?(?:is |was |gets |has been )?(?:written|logged|printed|appears)\b",
        r"\bno (?:new |further |more |log )?(?:lines?|output|log entr\w{1,3}) (?:since|for|after|any ?more|appears?)\b",
    ),
    "crash": Phrases(
        r"\b(?:crash\w{0,3}|segfault\w{0,3}|segmentation fault|core dumped|dies|died|aborts?|aborted|killed)\b",
        r"\b(?:bus error|exit code \d|raises|throws)\b",
        r"\b(?:stürzt|abgestürzt|bricht ab|падает|упал\w{0,2}|plante|se cierra)\b",
        r"崩溃|报错(?<!不报错)(?<!没有报错)|异常退出|クラッシュ|落ちる",
        r"\b(?:fails?|failed|failing) (?:with|in|at|on|to)\b",
        r"\b\w{2,40}Error\b",
    ),
    "slow": Phrases(
        r"\b(?:slow(?:er|ly|down)?|throughput|bandwidth|straggler|underperform\w{0,3})\b",
        r"\b(?:poor|bad|low|degraded|reduced|worse) (?:performance|scaling|efficiency|speed|busbw)\b",
        r"\bperformance (?:is |was |has )?(?:drop\w{0,4}|degrad\w{1,6}|regress\w{0,4}|poor|bad|low|halved)\b",
        r"\b(?:only )?(?:a fraction|half|a third|a quarter|\d{1,2} ?%) of (?:what|the expected|its|their|the usual)\b",
        r"\b\d{1,9}(?:\.\d{1,9})? ?(?:s|ms|sec\w{0,4}) per (?:step|iter\w{0,6})\b",
        r"\butili[sz]ation (?:drops|is low)\b",
        r"\b(?:tops? out|maxe[sd] out|peaks|caps?|levels off) at \d",
        r"\b(?:stays?|remains?) (?:near|at|around|below|under) (?:about )?\d{1,4}(?:\.\d{1,3})? ?(?:GB/s|Gb/s|Gbps)",
        r"\d ?(?:GB/s|Gb/s|Gbps|Gbit/s)[^.\n]{0,30}\b(?:where|instead of|rather than|vs|versus|while|others?)\b"
        r"[^.\n]{0,40}\d",
        r"\b(?:last (?:week|month|time|run)|yesterday|previously|used to)\b[^.\n]{0,80}"
        r"\d ?(?:s|ms|min|it/s|GB/s)(?: |\.|$)",
        r"\b(?:langsam\w{0,2}|Bandbreite|Durchsatz|медленн\w{0,3}|lent\w{0,3}|débit|ancho de banda)\b",
        r"(?:很|太|变|较|好|非常|特别|十分|越来越|速度)慢|慢(?:了)?很多|利用率(?:很|较|太|一直|非常)?低|带宽|吞吐|性能下降|遅い|遅く|느리|느려|느린",
        r"\bbottle-?necks?\b",
        r"\bcrawl(?:s|ing)?\b",
        r"\b(?:step|iteration|epoch|iter) times? (?:\w{1,8} )?"
        r"(?:explode|double|triple|jump|grow|r[io]se|increase|go|went)\w{0,1}\b",
        r"\b(?:\d{1,9} ?(?:x|times)|twice|double|three times|half) (?:slower|longer|as (?:long|slow|fast))\b",
        r"\btakes? (?:\w{1,12} ){0,4}(?:longer|ages|for ?ever|minutes|hours)\b",
        r"\b(?:more than|over|about) \d{1,2} ?% of (?:the )?(?:\w{1,10} ){0,2}time\b",
        r"\bexpect\w{0,3} [^.\n]{0,20}\d{1,9} ?G(?:B|b|iB)(?:/s|ps)",
        r"\bexpect\w{0,3} [^.\n]{0,20}\d{1,9} ?%? ?[^.\n]{0,24}"
        r"\b(?:but|we|I)? ?(?:get|gets|got|see|reach\w{0,3}) (?:only )?\d",
    ),
    "corruption": Phrases(
        r"\b(?:wrong|incorrect|garbage|corrupt\w{0,3}|different)"
        r" (?:results?|loss\w{0,2}|numbers?|values?|gradients?|outputs?|data)\b",
        r"\b(?:loss|results?|outputs?|curve)\b[^.]{0,40}\b(?:is|are|was|becomes?)"
        r" (?:wrong|garbage|nan|incorrect|zeros?)\b",
        r"\b(?:wrong|incorrect|swapped|shuffled|permuted|mixed[- ]up) (?:\w{1,12} ){0,2}(?:order|ranks?|tensors?)\b",
        r"\bNaNs?\b",
        r"\bdiverg\w{1,4}\b",
        r"\binstead of \[",
        r"\b(?:zeros|garbage) instead\b",
        r"\b(?:gradients?|weights|parameters|replicas|models?|buffers?)\b[^.\n]{0,60}"
        r"\b(?:(?:not|never|un) ?-?(?:\w{1,10} )?(?:synchroni[sz]ed|synced|averaged|all-?reduced)|out of sync"
        r"|not (?:\w{1,10} ){0,2}in sync)\b",
        r"\b(?:gradients?|weights|parameters|replicas)\b[^\n]{0,80}\b(?:(?:are|is) all different|"
        r"(?:differ|(?:are|is) different) (?:on|across|between|from rank|per rank|by rank))\b",
        r"\bno gradient (?:communication|synchroni[sz]ation|sync|averaging)\b",
    ),
}
_CHOICES: dict[str, Symptom] = {
    "lower performance than expected": "slow",
    "application crash": "crash",
    "data corruption": "corruption",
    "application hang": "hang",
}
_ASKED = re.compile(
    rf"How is this issue impacting you\?\**[ \t]*\n(?:[ \t]*\n){{0,3}}[ \t>*]{{0,8}}({'|'.join(_CHOICES)})",
    re.IGNORECASE,
)
_STOPS = r"\b(?:stall|stop|paus|freez|hang)\w{0,4} "
_OFTEN = (
    rf"{_STOPS}(?:\w{{1,12}} ){{0,4}}?"
    r"(?:every \S{1,20} (?:steps?|iter\w{0,8}|batch\w{0,2}|s|sec\w{0,4}|min\w{0,4})|periodically)\b"
)
_AGAIN_AND_AGAIN = re.compile(
    rf"(?i){_OFTEN}|{_STOPS}(?:for )?(?:a (?:while|moment|bit|few \w{{3,8}})|some (?:time|\w{{3,8}})"
    r"|\d{1,4} ?(?:s|secs?|seconds|min\w{0,4})),? (?:and )?(?:then )?(?:goes on|continues|resumes|runs on|proceeds)"
)
"""What stops and goes on again is slow."""
_DENIED = re.compile(r"(?:\b(?:no|not|without|never|any|neither|nor)\b|n['’]t\b)[\w ,]{0,12}$", re.IGNORECASE)


def answers(text: str) -> Iterator[tuple[int, str, Symptom]]:
    """Line, words and symptom of what was chosen in NCCL's form for issues."""
    for match in _ASKED.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1], _CHOICES[match[1].lower()]


def complains(line: str) -> bool:
    """Whether a person says in this line what goes wrong."""
    return is_prose(line) and bool(complaints(line))


def complaints(text: str) -> list[Symptom]:
    """What is said to be seen, and is not denied; not what went away or what a change did."""
    if text.endswith("?"):
        return []
    told = [
        category
        for category, shape in _SEEN.items()
        if any(not _DENIED.search(text[max(0, m.start() - 24) : m.start()]) for m in shape.finditer(text))
    ]
    if _AGAIN_AND_AGAIN.search(text):
        told = ["slow", *(category for category in told if category not in ("hang", "slow"))]
    return told
