"""Lines at the end of a file that say that the run ended well: the words of scripts, trainers and launchers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from whichrank.evidence.readers.torch_output import shell as shells
from whichrank.evidence.text.newest_lines import decoded
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.model.contracts import Item
from whichrank.records.events.launchers import ProcessExit
from whichrank.records.events.run_state import RunFinished

TAIL = 1 << 16
"""A run says that it is done at its end: in the last 64 KiB, or not at all."""
_LONGEST = 1024

How = Literal["words", "exit", "shutdown"]

_RUN = (
    r"(?:training|train|fine-?tuning|finetune|pre-?training|run|job|experiment|trainer|fit|main|script|epochs?|steps?"
    r"|worker|all ranks|everything|program)"
)
_DONE = (
    r"(?:finished|complete|completed|done|succeeded|successful(?:ly(?! \w{3,}ed\b))?|ended|(?:is|was) over"
    r"|successfully (?:finished|completed|ended))"
)
_WHO = (
    r"(?:rank|host|worker|process|node|gpu|trainer|actor|learner|stage|site|client|replica|peer)[ _#-]?\d{1,6}\W?"
    r"(?: is| has)?"
)
_ABROAD = (
    "termin", "achev", "abgeschlossen", "beendet", "fertig", "finit", "conclu", "finaliz", "zako", "codice", "sortie",
    "salida", "верш", "конч", "выхода", "完成", "结束", "完了", "終了", "退出", "완료", "종료",
)  # fmt: skip
"""One of these stands in what programs print in other languages."""
_MAYBE = (
    b"done", b"finish", b"complet", b"succe", b"ended", b"end of", b"over", b"bye", b"exit", b"return", b"rc",
    b"status", b"reached", b"train_runtime", b"passed", b"time", b"ut of bounds", shells.ASKED,
    *(word.encode() for word in _ABROAD),
)  # fmt: skip
# What loggers put before the words: ` - INFO - rank 0 - `, `INFO train: `, `[INFO] [launch.py:351:main] `, glog's
# `p0 I1103 06:56:11.001230 train.py:240] `.
_LOGGER = re.compile(
    r"^(?:[\s|-]*(?:\[(?!after )[^\]]{0,80}\]|(?:info|notice)\b:?|rank \d+|\d{1,6} {0,2}[|:](?=\s)|[\w.]{1,40}:(?=\s)"
    r"|(?:\w{1,8} )?i\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,4}(?:\d{1,8} )?[\w./-]{1,120}:\d{1,6}\])[\s|:-]*){0,6}"
)
# In lower case.
_WORDS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b{_RUN}\b[^.;]{{0,40}}\b{_DONE}\b",
        rf"(?<![\w.-])(?:finished|completed|done)\b(?: with)?[^.;]{{0,30}}\b{_RUN}\b",
        rf"^\W*(?:all |{_WHO} )?(?:done|finished|completed?|success|bye|exiting normally)\b\s?(?:[.!;,:]|in \d|\(|$)",
        r"\ball \d+ [^.;]{3,60}, (?:finished|done|completed?)\W*$",
        # The names of events, as structured loggers have them.
        r"\b(?:train(?:ing)?|run|job|fit|finetun(?:e|ing))[_.-](?:finished|completed?|done|succeeded|success)\b(?!\W{1,3}(?:false|0\b))",
        r"[;.,] bye\W*$|^\W*end of (?:the )?(?:training|run|job)\b",
        r"\bexit(?:s|ed|ing)? (?:successfully|normally|cleanly)\b",
        # A unit of the job; those of the system end well all day.
        r"(?:train|job|launch|torch|tune|llm|model)[\w@.-]{0,60}\.service: deactivated successfully\b",
        r"\b(?:\w{2,16}ing|shutting_down|active|queued|submitted|started) ?-> ?(?:finished|succeeded|completed)\b",
        r"^=+ \d+ passed(?:, \d+ (?:skipped|xfailed|xpassed|warnings?|deselected))* in \d",
        r"\bmax_(?:epochs|steps|iters)\W{1,3}\w{1,12}\W{0,3} reached",
        r"['\"]train_runtime['\"]\s*:",
        r"\breached (?:the )?(?:max(?:imum)?|last|final|target|total)[ _]?(?:steps?|epochs?|iterations?)\b",
        r"\bstate\W{1,4}completed\b|\bcompleted\b.{0,12}\b0:0\b",
        r"\bjob\b.{0,60}\bsucceeded\b|\bsuccessfully completed\b|\bcompleted successfully\b|\bfinished successfully\b",
        r"\btotal (?:training )?(?:wall|run)?-?\s?time\b.{0,10}\d",
        r"^# out of bounds values : 0 ok",
        r"^successful requests: {1,60}[1-9]",
        # In other languages.
        r"\b(?:apprentissage|entra[iî]nement|ex[ée]cution)\b[^.;]{0,30}\b(?:termin|achev)é",
        r"\b(?:training\w{0,8}|lauf|job)\b[^.;]{0,30}\b(?:abgeschlossen|beendet|fertig)\b",
        r"\b(?:addestramento|allenamento|esecuzione)\b[^.;]{0,30}\b(?:finit|completat|terminat|conclus)[oa]\b",
        r"\b(?:entrenamiento|ejecución)\b[^.;]{0,30}\b(?:terminad|completad|finalizad)[oa]\b",
        r"\b(?:treinamento|treino|execução)\b[^.;]{0,30}\b(?:concluíd|terminad|finalizad)[oa]\b",
        r"\b(?:trening|uczenie|zadanie)\b[^.;]{0,30}\bzakończon[aey]\b",
        r"\bexit codes?\W{1,3}(?:[\w-]{1,20} ?[=:] ?0(?:[ ,;]{1,3}|$)){1,256}$",
    )
)
_IN_OTHER_LETTERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(?:обучение|тренировка|задача)\b[^.;]{0,30}\b(?:завершен|закончен)[аоы]?\b",
        r"训练(?:任务)?(?:已经?|全部)?(?:完成|结束)",
        r"(?:学習|訓練|トレーニング)[がは]?(?:完了|終了)",
        r"(?:학습|훈련)[이가]? ?(?:완료|종료)",
    )
)
_ENDS = (
    "done", "finish", "complet", "succe", "ended", "end of", "over", "bye", "exit", "reached", "train_runtime",
    "passed", "total", "out of bounds", "successful requests", "deactivated", *_ABROAD,
)  # fmt: skip
"""One of these stands in everything that those match."""
_EXIT = re.compile(
    r"\b(?:exit(?:ed|s|ing)?|return(?:ed)?|finished|ended|rc|status)\b(?:[ _-]?(?:code|status|with|value)){0,3}"
    r"\W{0,4}0(?::0)?(?![\w:%/]|\.\w|\s*/)"
    r"|(?:\bcodice(?: di uscita)?|\bcode de sortie|\bcódigo de (?:salida|saída)|\bкод (?:выхода|завершения)|退出码"
    r"|終了コード|종료 코드)"
    r"\W{0,4}0(?![\w.:%/])"
)
# What makes the same words their opposite, wherever it stands in the line; a wish, or a part, where it stands in the
# same sentence: torchrun's "worker group successfully finished. Waiting 300 seconds for other agents to finish.".
_FAILED = re.compile(
    r"\b(?:failed|failure|fail|error|errors|exception|abort\w*|killed|crash\w*|hang\w*|hung|stuck|freez\w*|stall\w*"
    r"|dead-?lock\w*|timed? ?out)\b"
)
_COUNTED = re.compile(
    r"\b\d+ (?:failed|failures?|errors?)\b(?! (?:ranks?|workers?|process(?:es)?|nodes?|hosts?|tasks?|jobs?)\b)"
)
"""`finished, 2 failed uploads`, `done: 40 ok, 0 errors`: the run counts what it got over."""
_SENTENCE = re.compile(r"(?<=[a-z)])\. (?=[a-z])")
_NOT = re.compile(
    r"\b(?:not|never|un\w+|incomplete|cannot|can't|couldn't|didn't|hasn't|isn't|won't|wasn't|before|until|unless|waiting"
    r"|wait|should|would|will|when|if|once|warmup|warm-up|phase|epoch \d+ (?:done|finished|complete\w*)"
    r"|(?:steps?|iter\w{0,8}|batch)[ =:#_]{0,3}\d+(?![\d/]| of)[^.;]{0,40} (?:done|finished|complete\w{0,2})"
    r"|(?:first|second|third|last|previous|\d+(?:st|nd|rd|th)) epoch|eval\w*|validat\w*|init\w*|setup|loading"
    r"|done with (?:step|job)$|download\w*|compil\w*|tokeniz\w*|preprocess\w*|check|store|rendezvous"
    r"|server (?:stopped|closed|exited|ended)"
    r"|tensorboard|sidecar|exporter|sampler|prolog|epilog|nicht|noch|pas|non|aún|não|nie|не|ещё)\b|未|まだ|아직"
)


def read(item: Item, breaks: int, clock: Clock) -> Iterator[tuple[int, Voice, RunFinished | ProcessExit]]:
    """Number and words of the lines at the end that say so, or with which code a shell says that it ended, in order."""
    with item.open() as stream:
        text = decoded(stream)
        if text is None:
            stream.seek(max(0, item.size - TAIL))
            text = stream.read(TAIL)
    lines, low = text[-TAIL:].split(b"\n"), text[-TAIL:].lower()
    words = [word for word in _MAYBE if word in low]
    typed = shells.ASKED in words or (words and shells.PROBES.search(low))
    shell = shells.Shell() if typed else None
    for number, line in enumerate(lines, breaks + 2 - len(lines)) if words else ():
        if number <= 0:
            continue
        code = shell.feed(line) if shell is not None else None
        if shell is not None and code is not None:
            yield number, Voice(f"{shell.asked}: exit code {code}"), _ended(code)
        elif (shell is None or not shell.probes) and any(map(line[:_LONGEST].lower().__contains__, words)):
            voice = listen(line[:_LONGEST], clock)
            if how := _how(voice.text):
                yield number, voice, RunFinished(how=how)


def _ended(code: int) -> RunFinished | ProcessExit:
    """What a shell's exit code says; above 128 a signal ended the program."""
    if code == 0:
        return RunFinished(how="exit")
    return ProcessExit(by="shell", exitcode=code, signal=code - 128 if code > 128 else None)


def _how(text: str) -> How | None:
    """Whether these words say that the run ended well, or that a server left as it was asked to."""
    said = _LOGGER.sub("", text.lower())
    if said.startswith("application shutdown complete"):
        return "shutdown"
    sentences = _SENTENCE.split(said)
    found = (how for sentence in sentences if (how := _said(sentence)) and not _NOT.search(sentence))
    how = next(found, None)
    return None if how and _FAILED.search(_COUNTED.sub("", said)) else how


def _said(sentence: str) -> How | None:
    if "0" in sentence and _EXIT.search(sentence):
        return "exit"
    maybe = any(map(sentence.__contains__, _ENDS))
    known = _WORDS if sentence.isascii() else (*_WORDS, *_IN_OTHER_LETTERS)
    return "words" if maybe and any(pattern.search(sentence) for pattern in known) else None
