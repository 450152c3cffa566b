"""What `rules check` does: everything that can be wrong with a plug-in, each with what to do about it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from whichrank.facts import messages, site, taxonomy
from whichrank.flows import explain
from whichrank.flows.plugins import run as plugins
from whichrank.model.errors import FactsError

SECTIONS = ("What it finds", "Why it happens", "How it decides", "Example", "Fix", "Limits")
CATEGORIES = ("hang", "crash", "slow", "corruption", "config")
_SHAPE = re.compile(r"[A-Z]{3,5}\d{3}")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Complaint(Struct, frozen=True):
    """One defect of a plug-in."""

    kind: str
    """syntax, page, code, pattern, cause, example, table, rule, folder."""
    path: str
    message: str


class Checked(Struct, frozen=True):
    """What was looked at, and what is wrong with it."""

    rules: tuple[str, ...]
    signatures: tuple[str, ...]
    causes: tuple[str, ...]
    fixes: int
    complaints: tuple[Complaint, ...]


def check(folder: Path) -> Checked:
    """Check one plug-in folder, with nothing but the built-in knowledge beside it."""
    plugin = site.Plugin(folder, "rules check")
    before = os.environ.get(site.VARIABLE)
    os.environ[site.VARIABLE] = str(folder.absolute())
    site.forget()
    try:
        return _checked(plugin)
    finally:
        if before is None:
            del os.environ[site.VARIABLE]
        else:
            os.environ[site.VARIABLE] = before
        site.forget()


def _checked(plugin: site.Plugin) -> Checked:
    complaints = [Complaint("folder", str(problem.path), problem.why) for problem in site.problems()]
    complaints += _tables(plugin)
    signatures: list[str] = []
    for path in plugin.signatures():
        found, wrong = _signatures(plugin, path)
        signatures += found
        complaints += wrong
    codes: dict[str, Path] = {}
    for path in plugin.rules():
        complaints += _rule(plugin, path, codes)
    if not (plugin.rules() or plugin.signatures() or _rows(plugin, "causes.csv") or _rows(plugin, "fixes.csv")):
        complaints.append(
            Complaint("folder", str(plugin.folder), "no rules/*.py, signatures/*.ini, causes.csv or fixes.csv in it")
        )
    added = tuple(row.get("cause", "") for row in _rows(plugin, "causes.csv"))
    return Checked(tuple(codes), tuple(signatures), added, len(_rows(plugin, "fixes.csv")), tuple(complaints))


# -- tables


def _rows(plugin: site.Plugin, name: str) -> list[dict[str, str]]:
    columns = site.CAUSE_COLUMNS if name == "causes.csv" else site.FIX_COLUMNS
    try:
        return site.table(plugin.folder / name, columns) if (plugin.folder / name).exists() else []
    except FactsError:
        return []


def _tables(plugin: site.Plugin) -> Iterator[Complaint]:
    known = _built_in_causes()
    for name, columns in (("causes.csv", site.CAUSE_COLUMNS), ("fixes.csv", site.FIX_COLUMNS)):
        if (plugin.folder / name).exists():
            try:
                site.table(plugin.folder / name, columns)
            except FactsError as error:
                yield Complaint("table", name, error.message)
    for row in _rows(plugin, "causes.csv"):
        if row["cause"] in known:
            yield Complaint("cause", "causes.csv", f"the cause {row['cause']} is a built-in one: use it without a row")
        elif not _SLUG.fullmatch(row["cause"]):
            yield Complaint("cause", "causes.csv", f"{row['cause']!r} is not a slug such as scratch-quota")
        if row["usual_category"] not in CATEGORIES:
            yield Complaint("cause", "causes.csv", f"{row['cause']}: usual_category is one of {', '.join(CATEGORIES)}")
    for row in _rows(plugin, "fixes.csv"):
        if row["cause"] not in taxonomy.causes():
            yield Complaint("cause", "fixes.csv", f"{_unknown(row['cause'])}")


def _built_in_causes() -> set[str]:
    import csv

    with (Path(taxonomy.__file__).parent / "taxonomy.csv").open(newline="", encoding="utf-8") as stream:
        return {row["cause"] for row in csv.DictReader(stream)}


def _unknown(cause: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(cause, taxonomy.causes(), n=1)
    return (
        f"the cause {cause!r} is neither in the taxonomy nor in causes.csv"
        f"{f'; did you mean {near[0]}?' if near else ''}"
    )


# -- signatures


def _signatures(plugin: site.Plugin, path: Path) -> tuple[list[str], list[Complaint]]:
    name = str(path.relative_to(plugin.folder))
    try:
        found = messages.read_signatures(path)
    except FactsError as error:
        kind = "pattern" if "pattern" in error.message or "repeat" in error.message else "table"
        kind = "cause" if "the cause " in error.message else kind
        return [], [Complaint(kind, name, error.message)]
    complaints = []
    for signature in found:
        if signature.id in messages.built_in():
            complaints.append(
                Complaint("code", name, f"the signature {signature.id} is a built-in one: choose another id")
            )
        elif wrong := _slow(signature):
            complaints.append(Complaint("pattern", name, f"the signature {signature.id}: {wrong}"))
        else:
            complaints += [Complaint("example", name, text) for text in _examples(signature)]
    return [signature.id for signature in found], complaints


def _examples(signature: messages.Signature) -> Iterator[str]:
    """Each example must be recognised as this message: by its own pattern, and beside the built-in ones."""
    for example in signature.examples:
        if signature.search(example) is None:
            yield f"the signature {signature.id} does not match its own example: {example[:80]!r}"
            continue
        seen = [found for found, _ in messages.recognise(example)]
        if signature.id not in {found.id for found in seen}:
            has = ", ".join(found.id for found in seen) or "another"
            yield f"the example of {signature.id} is taken by the built-in signature {has}: {example[:80]!r}"


def _slow(signature: messages.Signature) -> str:
    """Whether a line that almost fits takes long: tried in a child, because `re` can't be interrupted."""
    if plugins.within(lambda: _try_hard(signature), 3.0):
        return ""
    return "the pattern is too slow on lines that almost fit it: give its repeats small bounds"


def _try_hard(signature: messages.Signature) -> None:
    for anchor in signature.anchors:
        for filler in ("a", " ", "0", "/", anchor, "a ", "a1_", "aA:", *signature.examples):
            signature.search(f"{filler * (1300 // len(filler))}{anchor}{filler * (1100 // len(filler))}\x00")


# -- rules


def _rule(plugin: site.Plugin, path: Path, codes: dict[str, Path]) -> Iterator[Complaint]:
    name = str(path.relative_to(plugin.folder))
    try:
        tree = ast.parse(site.bounded(path).read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError, FactsError) as error:
        yield Complaint("syntax", name, f"it can't be read: {error}")
        return
    stated = dict(_stated(tree))
    lacking = [field for field in ("CODE", "CAUSE") if field not in stated]
    if "judge" not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
        lacking.append("judge(case)")
    if lacking:
        yield Complaint("page", name, f"it has no {', '.join(lacking)}: a rule states CODE, CAUSE and judge(case)")
        return
    code, cause = stated["CODE"], stated["CAUSE"]
    yield from (Complaint("page", name, text) for text in _page(ast.get_docstring(tree) or ""))
    yield from (Complaint("code", name, text) for text in _clashes(code, codes))
    codes.setdefault(code, path)
    if cause not in taxonomy.causes():
        yield Complaint("cause", name, _unknown(cause))
        return
    yield from (Complaint(kind, name, text) for kind, text in _tried(plugin, path, code))


def _stated(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))


def _page(page: str) -> Iterator[str]:
    if not page.partition("\n")[0].rstrip().endswith("."):
        yield "its docstring does not begin with one sentence that says what it finds"
    missing = [section for section in SECTIONS if not re.search(rf"^## {section}$", page, re.MULTILINE)]
    if missing:
        yield f"its docstring, which is its page, has no section {', '.join(f'## {section}' for section in missing)}"


def _clashes(code: str, codes: dict[str, Path]) -> Iterator[str]:
    built_in = {known for known, _, _ in explain.built_in_rules()}
    if not _SHAPE.fullmatch(code):
        yield f"the code {code!r} is not three to five capitals and three digits, such as ACME101"
    elif code in built_in:
        yield f"the code {code} is a built-in rule's: choose a prefix of your own, such as ACME101"
    elif code[:-3] in {known[:-3] for known in built_in}:
        yield f"the prefix {code[:-3]} belongs to built-in rules: choose your own, such as ACME101"
    elif code in codes:
        yield f"the code {code} is used by {codes[code].name} as well"


def _tried(plugin: site.Plugin, path: Path, code: str) -> Iterator[tuple[str, str]]:
    """The rule on nothing, on the evidence on which it must fire, and on that on which it must not."""
    from whichrank.timeline.case import Case

    answer = plugins.alone(Case(), path)
    if answer is None or "failed (" in answer.missing:
        yield "rule", f"on an empty case it must return NotEvaluated, and it {_failed(answer)}"
        return
    if not answer.missing:
        yield "rule", 'on an empty case it must return NotEvaluated("what was missing"), and it says "clear"'
    for kind in ("fires", "clear"):
        evidence = plugin.folder / "examples" / code / kind
        if not evidence.is_dir() or not any(evidence.iterdir()):
            yield "example", f"there is no evidence in examples/{code}/{kind}/ on which it must{_NOT[kind]} fire"
            continue
        answer = plugins.alone(case_of(evidence), path)
        if answer is None or "failed (" in answer.missing:
            yield "rule", f"on examples/{code}/{kind} it {_failed(answer)}"
        elif kind == "fires" and not answer.findings:
            said = f"it says it misses {answer.missing}" if answer.missing else 'it says "clear"'
            yield "example", f"it does not fire on examples/{code}/fires: {said}"
        elif kind == "clear" and answer.findings:
            yield "example", f"it fires on examples/{code}/clear: {answer.findings[0].message[:120]}"


_NOT = {"fires": "", "clear": " not"}


def _failed(answer: plugins.Answer | None) -> str:
    return "did not answer in time" if answer is None else answer.missing


def case_of(evidence: Path) -> Any:
    """All that the readers make of a folder, lined up."""
    from whichrank.evidence.intake import collect
    from whichrank.flows.diagnose.reading import read_all
    from whichrank.timeline.assemble import build_case

    with collect([evidence]) as intake:
        results = read_all(intake.items, jobs=1, progress=None)
    readings = [reading for result in results if isinstance(result, list) for _, reading in result]
    return build_case([record for reading in readings for record in reading.records])
