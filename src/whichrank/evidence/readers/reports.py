"""What a person writes about a failure: what was tried and whether it helped, and what was seen.

Read are short texts, outside of what programs print. "NCCL_P2P_DISABLE=1 does not help" and "works with
NCCL_P2P_DISABLE=1" are opposite statements: a change gets the outcome that stands nearest to it in its sentence, or
that of the heading above its list. Questions, advice and guesses ("might help") have no outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from whichrank.evidence.text.quotations import DOCUMENTS
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.interventions import UNCHANGED, did_nothing, interventions
from whichrank.facts.messages import is_printed
from whichrank.facts.required_words import Phrases
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.trial import Complaint, Outcome, Symptom, Trial

NAME = "reports"
BESIDE = True

_LARGEST = 1 << 16
"""What a person writes about a failure is not longer."""
_LONGEST_LINE = 2000
_WORDS = 4
"""A sentence has at least so many."""
_NOT_PROSE = (
    ".py", ".pyi", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".sh",
)  # fmt: skip


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


_PRINTED_WITHIN = re.compile(
    r"NCCL (?:INFO|WARN|VERSION|TRACE|CALL)|(?<![=\w])(?:WARNING|ERROR|INFO|DEBUG)\b(?!=)|\.py:\d|\bwhat\(\)"
)
_MARKS = ("NCCL ", "WARNING", "ERROR", "INFO", "DEBUG", ".py:", "what()")
"""One of these stands where that one matches."""
_PRINTED = re.compile(
    r"\s{0,16}File \"|\s{0,8}\[|[{<]|(?:\w{1,8} )?(?:\d{4}-\d\d-\d\d|[IWEF]\d{4} \d\d:\d\d:)"
    r"|\w{3} +\d{1,2} \d\d:\d\d:\d\d|\s{0,8}(?:at|#\d) "
    r"|Traceback|\w{1,60}=\S+$|\w{1,40}(?:Error|Exception):|Exception ignored in"
    r"|[\w./-]{2,40}(?:\[\d{1,10}\])?: (?:error|warning|fatal|notice|info|debug): "
    r"|\((?:raylet|autoscaler\b[^)]{0,40}|\w{1,60}(?:\([^)]{0,40}\))? pid=\d{1,10}[^)]{0,80})\) "
)
"""How lines of programs begin."""
_CHAT = re.compile(
    r"(?m)^[ \t]{0,4}\[?(?:\d{4}-\d\d-\d\d )?\d{1,2}:\d\d(?: [AP]M)?\]?,? "
    r"(?:[<@]?[A-Za-z][\w.-]{0,30}(?: [A-Z][\w.-]{0,30})?>?:?) (?=[^\n]{0,400} )"
)
"""What a chat puts before the words of each: `[09:14] anya: `. Programs print the seconds too."""
_ITEM = re.compile(r"^\s{0,12}(?:[-*+•]|\(?\d{1,2}[.)]) +")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_CLAUSE = re.compile(r"(?:,| but | however | whereas | while |;) ?", re.IGNORECASE)

_NO_HELP = _any(
    r"(?:\b(?:did|does|do|has|have|had|is|was|would|could|can|will)(?: not|n['’]?t)|\b(?:never|cannot|not))"
    r" (?:\w{1,12} ){0,2}?(?:help|work|fix|solv|resolv|chang|matter|improv|affect|any ?thing)\w{0,4}",
    UNCHANGED,
    r"\bstill (?:\w{1,12} )?(?:hang|hung|fail|crash|freez|froz|stuck|stall|happen|occur|the same|slow)\w{0,4}",
    r"\bstill (?:\w{1,12} )?(?:dies|gets?|sees?|wrong)\b",
    r"\b(?:neither|nor|in vain|useless|unchanged)\b",
    r"\bonly (?:delay|postpon)\w{0,3}",
    r"\bmakes? (?:it|things) worse",
    r"\b(?:hangs?|fails?|crashes) (?:anyway|too|as well|as before)",
    r"\bnone of (?:these|them|this|that)\b",
)
_HELPED = _any(
    r"\b(?:help(?:s|ed)|work(?:s|ed)|fix(?:es|ed)|solv(?:es|ed)|resolv(?:es|ed)|cur(?:es|ed)|succeed(?:s|ed))\b",
    r"\b(?:runs?|ran|trains?|trained|passes|passed|starts?|completes?)"
    r" (?:again|fine|ok|okay|through|well|normally|now|correctly|without (?:a |any )?(?:problem|issue|error|hang)s?)\b",
    r"\b(?:it|everything|training|the job) (?:runs|trains|passes|starts)\b",
    r"\b(?:goes|went|go) away\b",
    r"\bdisappear(?:s|ed)?\b",
    r"\b(?:is|are|was) (?:gone|not there|fine|right|correct|normal)\b",
    r"\b(?:does|did)(?: not|n['’]?t) (?:\w{1,8} )?(?:happen|occur|appear|hang|crash|fail|deadlock|freeze)\b",
    r"\bno (?:more|longer)\b",
    r"\bno (?:hang|problem|issue|error|crash)(?:s|es)?\b",
    r"\bdoes the trick\b",
    r"\bmakes? (?:it|the \w{1,20}|everything) (?:work|right|correct|fine|pass|run|go away)\b",
    r"\bfine with\b",
    r"\b(?:goes|went|gets|got|comes|came) through\b",
    r"\b(?:is|runs|stays|remains|was) (?:clean|stable)\b",
    r"\bno such (?:trouble|problem|issue|hang|error|thing|slowdown)s?\b",
    r"\b(?:full|expected|normal|usual|good) (?:speed|performance|throughput|bandwidth)\b",
)
_NO_OUTCOME = _any(
    r"\?\s*$",
    r"\b(?:might|may|could|should|would|perhaps|maybe|try|please|consider|recommend\w{0,3}|suggest\w{0,3})\b",
)
_STATE = _any(
    r"\b(?:is|are|was|were|inactive)\b", r"^(?:firewall|ufw|iptables|iommu|acs|vt-d)", r"^--(?:ipc|shm-size|cap-add)"
)
_SWITCHED_OFF = _any(r"\b(?:off|disabled?|disabling|without|skip\w{0,4}|removed?|removing|no)\b", r"=? ?False\b")
_COMES_WHEN = _any(
    r"\b(?:comes? up|happen(?:s|ed)?|occur(?:s|red)?|appear(?:s|ed)?|shows? up) "
    r"(?:\w{1,10} ){0,2}?(?:when|while|whenever|as soon as|during|in the middle of)\b"
)
_THAN = _any(r"\b(?:slower|longer|worse|less|lower|fewer|hang\w{0,3}|fail\w{0,3})\b[^.]{0,24}\bthan (?:\w{1,8} ){0,3}$")
"""Worse than with the change that follows."""
_ONLY_LARGER = _any(r"only\b[^.]{0,60}\b(?:multi|several|two|2|more|\d)")
"""It fails only in a larger job: it works in the smaller one."""
_UNDONE = _any(r"\b(?:without|unset\w{0,4}|remov\w{1,3}|dropp\w{1,3}|delet\w{1,3}) (?:the )?[\"'`]?$")
_UNCHANGED = _any(r"\W{0,3}(?:defaults?|base ?line|none|nothing|as (?:it )?is|unset|no change|unchanged|plain)\b")
_GOOD_CELL = _any(r"\W{0,3}(?:ok|okay|works?|passe[sd]|pass|fine|yes|good|runs?|no (?:hang|error|crash))\b|[✓✔✅]")
_BAD_CELL = _any(r"\W{0,3}(?:fail\w{0,3}|hangs?|hung|crash\w{0,2}|errors?|no|bad|stuck|timeout|dies|oom)\b|[✗✘❌]")

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
        r"\b(?:does|do|did)(?:n[’']t| not) (?:get|go|come|make it) (?:past|beyond|further)\b",
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
        r"很慢|太慢|变慢|较慢|速度慢|带宽|吞吐|性能下降|遅い|遅く|느리|느려|느린",
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
        r"\bNaNs?\b",
        r"\bdiverg\w{1,4}\b",
        r"\binstead of \[",
        r"\b(?:zeros|garbage) instead\b",
        r"\b(?:gradients?|weights|parameters|replicas|models?|buffers?)\b[^.\n]{0,60}"
        r"\b(?:(?:not|never|un) ?-?(?:\w{1,10} )?(?:synchroni[sz]ed|synced|averaged|all-?reduced)|out of sync"
        r"|not (?:\w{1,10} ){0,2}in sync)\b",
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
_ANSWER = 4
"""What an answer weighs, against sentences that only name a symptom."""
_DENIED = re.compile(r"(?:\b(?:no|not|without|never|any|neither|nor)\b|n['’]t\b)[\w ,]{0,12}$", re.IGNORECASE)
_SMALL = frozenset(
    ("a", "an", "the", "is", "are", "was", "it", "its", "we", "i", "our", "my", "they", "this", "that", "with", "when",
     "without", "but", "and", "on", "in", "of", "to", "from", "after", "if",
     "der", "die", "das", "und", "ist", "nicht", "wir", "bei", "mit", "auf", "le", "la", "les", "est", "et", "nous",
     "avec", "pas", "el", "los", "es", "con", "y", "que", "и", "не", "на", "в", "с", "что", "мы")
)  # fmt: skip
_WITHOUT_SPACES = re.compile(r"(?:[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3][^\n]?){6}")
"""Chinese, Japanese and Korean."""
_VAGUE = _any(r"\b(?:fails?|failed|failing|failure)\b")
"""Every report may say so in its title: it does not tell how."""
_TAG = re.compile(r"^\s{0,8}(?:\[[A-Za-z][\w /.-]{0,24}\]:? ?){1,3}(?=[A-Za-z])")
"""What titles of tickets begin with: `[Bug]: `, `[FSDP] `."""
_PERSON = re.compile(r"(?<!: )\b(?:I|I'm|we|We|my|My|our|Our|us)\b")
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MOST_SHAPES = 1 << 12
_SOME = 30
"""A person who pastes a log writes at least one line in thirty."""
_TITLE_LINES = 4
_QUOTED = re.compile(r"`[^`\n]{1,200}`|\"[^\"\n]{16,300}(?:\"|$)|“[^”\n]{16,300}(?:”|$)")
"""What a person only cites: a function in whose name a message of a program may stand, or the message."""
_OTHERS, _MOST_ITEMS = 3, 64
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
_TIMES = re.compile(
    r"(?<![\w.])((?:\d{1,6}(?:\.\d{1,3})?\s{0,2}[,/]\s{0,2}){0,12}\d{1,6}(?:\.\d{1,3})?)"
    r" ?(ms|s|sec|seconds|min|minutes|h|hours)\b",
    re.IGNORECASE,
)


class _Unit(Struct, frozen=True):
    """A sentence, or an item of a list with what its heading says."""

    text: str
    line: int
    heading: Outcome = "unknown"


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning speaks of a change or a failure in sentences."""
    if not is_text(head) or name.lower().endswith(_NOT_PROSE):
        return False
    text = _CHAT.sub("", head.translate(_AS_ZEROS).decode("utf-8", "replace"))
    return any(map(_shape_is_prose, text.split("\n")[:200]))


def read(item: Item) -> Reading:
    """Trials and complaints; nothing of a text that is too long to be a report."""
    if item.size > _LARGEST or item.label.lower().endswith(_NOT_PROSE):
        return Reading([], "ignored", "not a report of a person")
    from whichrank.facts.phases import phase_in  # large patterns, and most evidence has no report

    records: list[Trial | Complaint] = []
    text = _CHAT.sub("- ", item.read().decode("utf-8", "replace"))
    document = item.label.lower().endswith(DOCUMENTS)
    spoken = document or _by_person(text)
    for line, row, change, outcome in tabled(text) if spoken else ():
        records.append(Trial(change, outcome, Ref(item.label, f"line {line}", row[:400])))
    faster = faster_items(text) if spoken else set()
    records += [
        Complaint(category, Ref(item.label, f"line {line}", said), _ANSWER) for line, said, category in answers(text)
    ]
    for unit in _units(text) if spoken else ():
        ref = Ref(item.label, f"line {unit.line}", unit.text[:400])
        heading = "helped" if unit.line in faster else unit.heading
        records += [Trial(change, outcome, ref) for change, outcome in tried(unit.text, heading)]
        weight = 2 if unit.line <= _TITLE_LINES and not _VAGUE.search(unit.text) else 1
        seen = complaints(unit.text)
        phase = None if did_nothing(unit.text) else phase_in(unit.text)
        if seen and not is_printed(_QUOTED.sub("", unit.text)):
            records += [Complaint(category, ref, weight, phase) for category in seen]
        elif phase is not None and _says_when(unit.text):
            records.append(Complaint("hang", ref, 0, phase))
    return Reading(list(records), "complete" if records else "ignored", "" if records else "no report in it")


def _says_when(sentence: str) -> bool:
    """Whether a sentence without a symptom says what the job does when it comes, or without which it does not."""
    switched_off = _SWITCHED_OFF.search(sentence) is not None and _HELPED.search(sentence) is not None
    return switched_off or _COMES_WHEN.search(sentence) is not None


def answers(text: str) -> Iterator[tuple[int, str, Symptom]]:
    """Line, words and symptom of what was chosen in NCCL's form for issues."""
    for match in _ASKED.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1], _CHOICES[match[1].lower()]


def _by_person(text: str) -> bool:
    """Whether a person wrote this: half of it are sentences, or some are and speak of themselves."""
    lines = [line for line in text.split("\n") if line.strip()]
    prose = [line for line in lines if _is_prose(line)]
    most = 2 * len(prose) >= len(lines)
    return most or (_SOME * len(prose) >= len(lines) and any(_PERSON.search(line) for line in prose))


def _is_prose(line: str) -> bool:
    if len(line) > _LONGEST_LINE or _PRINTED.match(line):
        return False
    spaced = line.isascii()
    if spaced and len(line.split(None, _WORDS)) < _WORDS:
        return False
    words = [word.strip(".,;:!?()`\"'") for word in line.lower().split()]
    # Programs print lists of values; sentences have small words between the others.
    spoken = not _SMALL.isdisjoint(words) and sum(map(str.isalpha, words)) >= _WORDS
    return (spoken or (not spaced and _WITHOUT_SPACES.search(line) is not None)) and not _is_printed(line)


_shape_is_prose = lru_cache(_MOST_SHAPES)(_is_prose)
"""Which digit is which does not matter, and files repeat the shapes of their lines."""


def _is_printed(line: str) -> bool:
    if _PRINTED.match(line):
        return True
    return any(map(line.__contains__, _MARKS)) and _PRINTED_WITHIN.search(line) is not None


def _units(text: str) -> Iterator[_Unit]:
    """Sentences and list items of the prose; a line that goes on below is joined."""
    heading: Outcome = "unknown"
    held, begun = "", 0
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.rstrip().strip("`")
        if number == 1:
            line = _TAG.sub("", line)
        item = _ITEM.match(line)
        usable = bool(line.strip()) and not _is_printed(line) and len(line) <= _LONGEST_LINE
        if held and (item or not usable):
            yield from (_Unit(part, begun) for part in _SENTENCE.split(held))
            heading = _outcome(held) if held.endswith(":") else heading
            held = ""
        if not usable:
            heading = heading if not line.strip() else "unknown"
        elif item:
            body = line[item.end() :]
            yield from (_Unit(part, number, heading) for part in _SENTENCE.split(body))
        else:
            heading = "unknown"
            held, begun = (f"{held} {line.strip()}", begun) if held else (line.strip(), number)


def faster_items(text: str) -> set[int]:
    """Lines of lists of trials with a time each (`num_workers=8: 44 min`) where it took half as long or less."""
    faster: set[int] = set()
    block: list[tuple[int, list[float]]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if _ITEM.match(line) and len(line) <= _LONGEST_LINE:
            block.append((number, _seconds(line)))
        elif not line.startswith((" ", "\t")):
            for at, took in block if len(block) <= _MOST_ITEMS else ():
                others = [value for other, values in block if other != at for value in values]
                if took and len(others) >= _OTHERS and 2 * max(took) <= min(others):
                    faster.add(at)
            block = []
    return faster


def _seconds(line: str) -> list[float]:
    """The times in a line, a unit behind the last of a list counting for all: `47, 45, 44 min`."""
    return [
        float(value) * _UNITS[match[2].lower()]
        for match in _TIMES.finditer(line)
        for value in match[1].replace("/", ",").split(",")
    ]


def _outcome(text: str) -> Outcome:
    if _NO_OUTCOME.search(text):
        return "unknown"
    if _NO_HELP.search(text):
        return "did not help"
    return "helped" if _HELPED.search(text) else "unknown"


def tried(text: str, heading: Outcome = "unknown") -> list[tuple[str, Outcome]]:
    """The changes of a sentence with what came of each: by its clause, the next, the one before, or the heading."""
    lower = text.lower()
    changes = [change for change in interventions().values() if any(map(lower.__contains__, change.words))]
    if not changes:
        return []
    clauses = [part for part in _CLAUSE.split(text) if part.strip()]
    spoken = [
        (number, change.change, match[0])
        for number, clause in enumerate(clauses)
        for change in changes
        if (match := change.within(clause)) and not _UNDONE.search(clause[: match.start()])
    ]
    if not spoken:
        return []
    outcomes = [_outcome(clause) for clause in clauses]
    if _NO_OUTCOME.search(text.strip()):
        outcomes = ["unknown"] * len(clauses)
    found: dict[str, Outcome] = {}
    for number, name, words in spoken:
        near = [outcomes[number], *outcomes[number + 1 :], *reversed(outcomes[:number]), heading]
        outcome: Outcome = next((o for o in near if o != "unknown"), "unknown")
        before = clauses[number][: clauses[number].find(words)]
        if _THAN.search(before) or _ONLY_LARGER.match(words):
            outcome = "helped"
        if _STATE.search(words) and outcomes[number] == "unknown" and not _NO_OUTCOME.search(text):
            outcome = "did not help"  # it is so, and the job fails all the same
        if found.get(name, "unknown") == "unknown":
            found[name] = outcome
    return list(found.items())


def tabled(text: str) -> Iterator[tuple[int, str, str, Outcome]]:
    """Line, row, change and outcome of tables with a change per row, where the row without one tells what fails."""
    table: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.lstrip().startswith("|") and len(line) <= _LONGEST_LINE:
            table.append((number, line.strip()))
        elif table:
            yield from _of_table(table)
            table = []


def _of_table(table: list[tuple[int, str]]) -> Iterator[tuple[int, str, str, Outcome]]:
    rows = [(number, line, [cell.strip() for cell in line.strip("|").split("|")]) for number, line in table]
    plain = next((cells for _, _, cells in rows if _UNCHANGED.match(cells[0])), [])
    failing = [column for column, cell in enumerate(plain) if column and _BAD_CELL.match(cell)]
    for number, line, cells in rows:
        outcomes = {_good_or_bad(cells[column]) for column in failing if column < len(cells)}
        outcome = outcomes.pop() if len(outcomes) == 1 else "unknown"
        if outcome != "unknown":
            changes = (change.change for change in interventions().values() if change.within(cells[0]))
            yield from ((number, line, change, outcome) for change in changes)


def _good_or_bad(cell: str) -> Outcome:
    return "helped" if _GOOD_CELL.match(cell) else "did not help" if _BAD_CELL.match(cell) else "unknown"


def complains(line: str) -> bool:
    """Whether a person says in this line what goes wrong."""
    return _is_prose(line) and bool(complaints(line))


def complaints(text: str) -> list[Symptom]:
    """What is said to be seen, and is not denied; not what went away or what a change did."""
    if text.endswith("?"):
        return []
    return [
        category
        for category, shape in _SEEN.items()
        if any(not _DENIED.search(text[max(0, m.start() - 24) : m.start()]) for m in shape.finditer(text))
    ]
