"""What `explain` does: every reading of a word, a number or a pasted message, the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whichrank.facts import codes, fixes, messages, rule_rows, site, taxonomy
from whichrank.facts.hardware import xids
from whichrank.facts.variables import environment, near_names
from whichrank.model.grades import Grade

RULES = Path(__file__).parent.parent / "rules"
_CODE = re.compile(r'^CODE = "(\w+)"$', re.MULTILINE)
_CAUSE = re.compile(r'^CAUSE = "([\w-]*)"$', re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_/-]{2,}")
_NUMBER = re.compile(
    r"(?:(?P<what>xid|sxid|exit ?code|exit|signal|status|ibv|cuda error|cuda failure|errno|error|cuda|nccl|result|rc)"
    r"(?![a-z])[\s:=(#]{0,3})?(?P<number>-?\d{1,5})\)?"
)
# Where a number of a kind stands in a line, whatever is around it.
_WITHIN = tuple(
    (re.compile(pattern), kinds)
    for pattern, kinds in (
        (r"\bxid\b ?(?:\([^)]{1,60}\))?[:,\s]{0,3}(\d{1,5})\b", ("xid",)),
        (r"\bsxid\b ?(?:\([^)]{1,60}\))?[:,\s]{0,3}(\d{1,5})\b", ("sxid",)),
        (r"\bexit ?code\b[\s:=(]{0,3}(-?\d{1,5})\b", ("exit_code", "signal")),
        (r"\b(?:killed by |received )?signal\b[\s:=(]{0,3}(\d{1,3})\b", ("signal",)),
        (r"\bcuda (?:failure|error)[\s:=(]{0,3}(\d{1,4})\b", ("cuda_error",)),
        (r"\b(?:errno|os error)[\s:=\]]{0,3}(\d{1,3})\b", ("errno",)),
        (r"\bgai(?:[ _]error)?[\s:=(]{0,3}(-\d{1,2})\b", ("gai_error",)),
        (r"\bgetaddrinfo\b[^\d-]{0,40}(-\d{1,2})\b", ("gai_error",)),
        (r"\b(?:completion|ibv|wc)\b.{0,160}?\b(?:status|error)[\s:=]{1,2}(?:ibv_wc_\w{1,40}\()?(\d{1,2})\b",
         ("ibv_status",)),
        (r"\bibv_wc_status[\s:=]{0,3}(\d{1,2})\b", ("ibv_status",)),
        (r"(?:^|=|\()(\d{1,2})\)? opcode\b", ("ibv_status",)),
        (r"(?:^|ror )(\d{1,2}), opcode \d", ("ibv_status",)),
        (r"\bnccl ?result(?:_t)?[\s:=(]{0,3}(\d)\b", ("nccl_result",)),
        (r"(?:^|\s)-> (\d)(?=$|[\s\[(])", ("nccl_result",)),
    )
)  # fmt: skip
_MOST = 8
_CUT = 14
"""So many letters of a known sentence are enough to recognise it where a line was cut."""
_OVERLAP = 0.55
"""The share of a message's words that must be met for a pasted text to be taken for it."""
_KINDS = {
    "xid": ("xid",), "sxid": ("sxid",), "exit code": ("exit_code", "signal"), "exitcode": ("exit_code", "signal"),
    "exit": ("exit_code", "signal"), "signal": ("signal",), "status": ("ibv_status",), "ibv": ("ibv_status",),
    "cuda": ("cuda_error",), "cuda error": ("cuda_error",), "cuda failure": ("cuda_error",),
    "errno": ("errno",), "error": ("cuda_error", "ibv_status", "errno", "xid"),
    "nccl": ("nccl_result",), "result": ("nccl_result",), "rc": ("nccl_result",),
}  # fmt: skip
_TITLES = {
    "nccl_result": "NCCL result", "ibv_status": "InfiniBand completion status", "cuda_error": "CUDA error",
    "signal": "Signal", "exit_code": "Exit code", "errno": "errno", "gai_error": "getaddrinfo error",
}  # fmt: skip


class Reading(Struct, frozen=True):
    """One thing that the words may mean."""

    kind: str
    id: str
    title: str
    text: str
    fix: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def explain(words: str) -> list[Reading]:
    """All readings, the likeliest first; none where nothing is known."""
    text = " ".join(words.split())
    found: dict[tuple[str, str], Reading] = {}
    for reading in _readings(text):
        found.setdefault((reading.kind, reading.id), reading)
    if not any(reading.kind != "folklore" for reading in found.values()):
        found |= {(reading.kind, reading.id): reading for reading in _resembling(text)}
    return list(found.values())[:_MOST]


def near(words: str) -> list[str]:
    """Known names that look like this one."""
    from difflib import get_close_matches

    names = [*(name for name, _, _ in rules()), *taxonomy.causes(), *(c.name for c in codes.codes())]
    close = get_close_matches(words.strip(), names, n=4, cutoff=0.6)
    variable = near_names.nearest(words.strip().upper()) if re.fullmatch(r"\w{4,60}", words.strip()) else ""
    return list(dict.fromkeys([*close, *([variable] if variable else [])]))


def _readings(text: str) -> Iterator[Reading]:
    yield from _exactly(text)
    results, known = [*_numbers(text), *_names(text)], _known(text)
    if any(_tells_more(signature, results) for signature in known):
        yield from map(_message, known)
    yield from results
    yield from map(_message, known)
    yield from _folklore(text)


# -- names


def _exactly(text: str) -> Iterator[Reading]:
    code = next((rule for rule in rules() if rule[0] == text.upper()), None)
    if code is not None:
        yield _rule(*code)
    slug = text.lower().replace("_", "-").replace(" ", "-")
    if slug in taxonomy.causes():
        yield _cause(slug)
    name = text.upper().partition("=")[0].strip()
    if re.fullmatch(r"[A-Z][A-Z0-9_]{3,60}", name) and (page := environment.page(name)):
        yield Reading("variable", page["id"], page["title"], page["text"], tuple(page["fix"]), tuple(page["sources"]))
        yield from _folklore(name)


def rules() -> tuple[tuple[str, str, Path], ...]:
    """Code, cause and file of every rule, those of plug-ins too, read without importing any."""
    return (*built_in_rules(), *_stated(file for plugin in site.plugins() for file in plugin.rules()))


@cache
def built_in_rules() -> tuple[tuple[str, str, Path], ...]:
    """Those that come with whichrank."""
    table = ((row.code, row.cause, rule_rows.FOLDER) for row in _rows().values())
    return (*_stated(sorted(RULES.rglob("*.py"))), *table)


def _rows() -> dict[str, rule_rows.RuleRow]:
    return {**rule_rows.rows("code"), **rule_rows.rows()}


def _stated(files: Iterable[Path]) -> list[tuple[str, str, Path]]:
    found = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # of a plug-in; `rules check` tells
        code, cause = _CODE.search(text), _CAUSE.search(text)
        if code and cause:
            found.append((code[1], cause[1], file))
    return found


def _rule(code: str, cause: str, file: Path) -> Reading:
    page = page_of(code, cause, file)
    title, _, body = page.partition("\n")
    fix = re.search(r"^## Fix\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    steps = (" ".join(fix[1].split()),) if fix else ()
    about = f"Cause: {cause}\n\n" if cause else ""
    return Reading("rule", code, f"{code}: {title}", f"{about}{body.strip()}", steps, (f"rule {code}",))


def page_of(code: str, cause: str, file: Path) -> str:
    """The page of a rule, read without importing it."""
    if file == rule_rows.FOLDER:
        return _rows()[code].page
    import ast

    try:
        page = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    except (OSError, SyntaxError, ValueError):
        return f"The plug-in {file} can't be read; whichrank rules check tells why."
    return fixes.with_fix(page, cause)


def _cause(slug: str) -> Reading:
    cause = taxonomy.causes()[slug]
    mine = [code for code, its, _ in rules() if its == slug]
    told = [s for s in messages.signatures().values() if s.cause == slug and s.role == "root"]
    lines = [
        cause.meaning,
        f"Family: {cause.family}. Usually seen as: {cause.usual_category}.",
        f"The culprit: {cause.culprit}.",
        f"Rules that find it: {', '.join(mine) or 'none yet'}.",
    ]
    if told:
        lines.append("Messages that tell it:")
        lines += [f"  {s.title} ({s.library})" for s in told[:12]]
    fixes = [_rule(*rule).fix for rule in rules() if rule[1] == slug]
    fix = tuple(dict.fromkeys(step for steps in fixes for step in steps))[:3]
    sources = tuple(dict.fromkeys(s.source for s in told))[:6] or ("taxonomy of causes",)
    return Reading("cause", slug, slug, "\n".join(lines), fix, sources)


def _names(text: str) -> Iterator[Reading]:
    lower = text.lower()
    for code in codes.codes():
        plain = code.name.lower().removeprefix("ibv_wc_")
        names = [name for name in (code.name.lower(), plain, code.alias.lower()) if name]
        within = any(
            len(name) > 5 and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lower) is not None for name in names
        )
        if lower in names or within or (code.kind != "signal" and _spoken(_sentence(code), lower)):
            yield _code(code)


def _sentence(code: codes.Code) -> str:
    """What the library says, without the advice that newer versions add in brackets."""
    return code.words.lower().partition(" (run with")[0]


def _spoken(words: str, text: str) -> bool:
    """Whether the text holds the words, or the text is a piece of them, or begins or ends in the middle of them."""
    if not words or words == text or (len(words) > 12 and words in text):
        return bool(words)
    least = max(_CUT, (2 * len(words)) // 3)
    if len(text) >= least and text in words:
        return True
    return any(text.endswith(words[:n]) or text.startswith(words[-n:]) for n in range(least, len(words)))


# -- numbers


def _numbers(text: str) -> Iterator[Reading]:
    if found := _NUMBER.fullmatch(text.lower()):
        number, what = int(found["number"]), found["what"]
        kinds = _KINDS.get(what, ()) if what else _any_kind(number)
        for kind in kinds:
            yield from _of_kind(kind, number)
        return
    for pattern, kinds in _WITHIN:
        for inside in pattern.finditer(text.lower()):
            for kind in kinds:
                yield from _of_kind(kind, int(inside[1]))


def _any_kind(number: int) -> tuple[str, ...]:
    """The kinds that a bare number may be of, the likeliest first."""
    row = xids.xid(number)
    used = row is not None and row.category != "unused"
    first = ("xid",) if used else ()
    if 128 < number < 160:  # a shell's way to tell a signal
        first = ("signal", *first)
    rest = ("exit_code", "signal", "ibv_status", "nccl_result", "cuda_error", "errno", "gai_error", "xid", "sxid")
    return (*first, *(kind for kind in rest if kind not in first))


def _of_kind(kind: str, number: int) -> Iterator[Reading]:
    if kind in ("xid", "sxid"):
        row = xids.xid(number) if kind == "xid" else xids.sxid(number)
        if row is not None:
            yield _xid(row)
            yield from _folklore(f"Xid {number}", exact=True)
        return
    as_signal = -number if number < 0 else number - 128 if number > 128 else number
    for code in codes.codes():
        if code.kind == kind and code.code == (as_signal if kind == "signal" else number):
            yield _code(code)


def _xid(row: xids.Xid) -> Reading:
    blame = {
        "memory": "memory of the GPU", "bus": "the GPU's connection", "nvlink": "NVLink or NVSwitch", "gpu": "the GPU",
        "application": "the program, not the GPU", "consequence": "nobody: it follows from another failure",
        "nobody": "nobody",
    }[row.blame]  # fmt: skip
    label = "Xid" if row.kind == "xid" else "SXid"
    lines = [row.meaning, f"Severity: {row.severity}. It speaks of: {blame}. Ends the job: {row.kills_job}."]
    lines += [row.note] if row.note else []
    return Reading(row.kind, str(row.code), f"{label} {row.code}: {row.name}", "\n".join(lines), row.fix, (row.source,))


def _code(code: codes.Code) -> Reading:
    lines = [code.meaning]
    if code.words:
        lines.append(f"{'Seen as' if code.kind == 'signal' else 'Text'}: {code.words}.")
    if code.cause:
        lines.append(f"Cause: {code.cause}.")
    title = f"{_TITLES[code.kind]} {code.code}: {code.name}"
    return Reading(code.kind, str(code.code), title, "\n".join(lines), (code.fix,) if code.fix else (), (code.source,))


# -- messages


def _known(text: str) -> list[messages.Signature]:
    """Known messages that stand in the text, or would in a warning of NCCL, whose mark is often left out."""
    exact = [found for found, _ in messages.recognise(text) or messages.recognise(f"NCCL WARN {text}")]
    order = {"root": 0, "consequence": 1, "hint": 2, "activity": 3, "harmless": 4}
    return sorted(exact, key=lambda signature: order[signature.role])


def _tells_more(signature: messages.Signature, results: Sequence[Reading]) -> bool:
    """Whether the message tells something else than the number or word in it: it knows what that stands for."""
    if signature.role == "consequence":
        return any("\nCause: " in result.text for result in results)
    sure = signature.role == "root" and signature.grade >= Grade.SUPPORTS
    return sure and not any(f"Cause: {signature.cause}." in result.text for result in results)


def _resembling(text: str) -> Iterator[Reading]:
    """Messages that share most of their words with the text."""
    mine = _tokens(text)
    if len(mine) < 2:
        return
    scored = []
    for signature in messages.signatures().values():
        share = max((_share(mine, _tokens(example)) for example in signature.examples), default=0.0)
        share = max(share, _share(mine, _tokens(signature.title)))
        if share >= _OVERLAP:
            scored.append((-share, signature.id, signature))
    for _, _, signature in sorted(scored, key=lambda item: item[:2])[:3]:
        its = _message(signature)
        yield replace(its, kind="similar", title=f"Not known; it resembles: {its.title}")


def _message(signature: messages.Signature) -> Reading:
    role = {
        "root": "It tells the cause.",
        "hint": "It makes the cause likelier; alone it does not prove it.",
        "consequence": "It is a consequence: the cause is elsewhere, and who prints it is a victim.",
        "activity": "It says what the job was doing.",
        "harmless": "It is harmless: healthy jobs print it too.",
    }[signature.role]
    lines = [signature.meaning, role]
    if signature.cause and signature.role in ("root", "hint"):
        others = ", ".join(signature.also)
        lines.append(f"Cause: {signature.cause}{f' (or {others})' if others else ''}.")
    versions = "" if signature.versions == "all" else f" {signature.versions}"
    lines.append(f"Printed by: {signature.library}{versions}.")
    lines.append(f"Example: {signature.examples[0]}")
    fix = (signature.fix,) if signature.fix else ()
    return Reading("message", signature.id, signature.title, "\n".join(lines), fix, (signature.source,))


def _tokens(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))


def _share(mine: frozenset[str], theirs: frozenset[str]) -> float:
    if not theirs or not mine:
        return 0.0
    return len(mine & theirs) / min(len(theirs), max(len(mine), 3))


# -- what is said and is wrong


def _folklore(text: str, *, exact: bool = False) -> Iterator[Reading]:
    lower = text.lower()
    mine = set(lower.split())
    for lore in codes.lore():
        keys = lore.words.lower()
        named = lore.words.split()[0]
        hit = keys.startswith(lower + " ") or keys == lower
        hit = hit or (not exact and "_" in named and re.search(rf"\b{re.escape(named.lower())}\b", lower) is not None)
        hit = hit or (not exact and len(mine & set(keys.split())) >= 3)
        if hit:
            body = f"What is said: {lore.claim}.\nWhat is true: {lore.truth}"
            yield Reading("folklore", lore.id, f"Said, and wrong: {lore.claim}", body, (), (lore.source,))


def as_document(readings: Sequence[Reading]) -> dict[str, object]:
    """The answer for scripts."""
    fields = ("kind", "id", "title", "text", "fix", "sources")
    return {
        "schema_version": 1,
        "readings": [
            {f: list(v) if isinstance(v := getattr(reading, f), tuple) else v for f in fields} for reading in readings
        ],
    }
