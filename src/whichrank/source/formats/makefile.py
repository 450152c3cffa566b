"""Makefiles: what is exported to recipes, and what a recipe's own lines set.

Each line of a recipe is a shell of its own; make takes values as they stand, quotes included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from whichrank.facts.variables.environment import in_family, is_read
from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Assignment, How, Lost, SettingsFile
from whichrank.source.formats import make_dollars, make_text
from whichrank.source.shell.embedded import Given, run_script

KIND = "makefile"
QUOTE_LIMIT = 300
LINE_LIMIT = 20_000
_SET = re.compile(
    r"(?:(?P<targets>[^=:#\t](?:[^=:#]*[^=:#\s])?)\s*:(?!=)\s*)?(?P<words>(?:(?:export|override|unexport|private)\s+)*)"
    r"(?P<name>[A-Za-z_][\w.-]*)\s*(?P<operator>[:?+!]{0,3}=)\s*(?P<value>.*)"
)
_RULE = re.compile(r"(?P<targets>[^\t#=:][^=:#]*)::?(?!=)(?P<rest>.*)")


class Make(Struct):
    out: SettingsFile
    lines: list[str]
    values: dict[str, str] = field(default_factory=dict)
    set_at: dict[str, tuple[str, int, bool]] = field(default_factory=dict)
    """Name -> value, line, and whether the assignment surely holds."""
    exported: set[str] = field(default_factory=set)
    every: bool = False
    one_shell: bool = False
    shell_like: bool = False
    """A dollar sign is the shell's, as in justfiles."""
    used: set[str] = field(default_factory=set)
    targeted: list[tuple[str, Given]] = field(default_factory=list)
    """Variables that are exported for one target."""
    private: dict[str, dict[str, str]] = field(default_factory=dict)
    """Target -> values that hold in its recipe only."""
    started: set[str] = field(default_factory=set)
    """Alternatives that start ranks: recipes, each of which is a run of its own."""
    reached: set[str] = field(default_factory=set)
    """Exported variables that ranks of some recipe get."""
    kept_back: list[Lost] = field(default_factory=list)
    """Exported variables that do not get to other hosts, where the recipe has a list of its own for those."""


Recipe = tuple[tuple[str, ...], list[tuple[int, str]]]
"""Targets, and the numbered lines."""


def read(text: str, label: str) -> SettingsFile:
    lines = text.split("\n")
    make = Make(SettingsFile.empty(label, KIND), lines)
    make.one_shell = bool(re.search(r"^\.ONESHELL\s*:", text, re.MULTILINE))
    make.every = bool(re.search(r"^\.EXPORT_ALL_VARIABLES\s*:|^export\s*$", text, re.MULTILINE))
    make.used = set(re.findall(r"\$[({](\w+)[)}]", text)) | set(re.findall(r"\$\$\{?(\w+)", text))
    recipes = _top_level(make)
    for name, (value, line, sure) in make.set_at.items():
        record(make, name, value, line, sure)
    given = [Given(n, v, at) for n, (v, at, _) in make.set_at.items() if n in make.exported or make.every]
    known = {target for targets, _ in recipes for target in targets}
    for targets, body in recipes:  # a target without a recipe hands its variables to those that it needs
        own = [item for target, item in make.targeted if target in targets or target not in known]
        values = {name: text for target in targets for name, text in make.private.get(target, {}).items()}
        recipe(make, body, [*given, *own], {**make.values, **values})
    one_run(make)
    return make.out


def one_run(make: Make) -> None:
    """What recipes have in common: which of the exported variables are for some of them alone, and, with one recipe
    that starts ranks, that what is set there meets all that is exported."""
    make.out.lost += [lost for lost in make.kept_back if lost.name not in make.reached]
    if len(make.started) < 2:
        make.out.assignments[:] = [a._replace(way="") if a.way in make.started else a for a in make.out.assignments]


def _top_level(make: Make) -> list[Recipe]:
    """Assignments are taken into `make`; returns the recipes."""
    recipes: list[Recipe] = []
    conditions, define, index = 0, False, 0
    while index < len(make.lines):
        start, line = index + 1, make.lines[index]
        index += 1
        if line.startswith("\t"):
            if recipes:
                recipes[-1][1].append((start, line[1:]))
            continue
        while line.rstrip().endswith("\\") and index < len(make.lines):
            line = line.rstrip()[:-1] + " " + make.lines[index].strip()
            index += 1
        word = line.split(maxsplit=1)[0] if line.split() else ""
        conditions += (word in {"ifeq", "ifneq", "ifdef", "ifndef"}) - (word == "endif")
        if define or word == "define":
            define = word != "endef"
        elif not word.startswith("#"):
            _line(make, line, start, recipes, sure=conditions <= 0)
    return recipes


def _line(make: Make, line: str, start: int, recipes: list[Recipe], *, sure: bool) -> None:
    """One line outside of recipes: an assignment, an export, or the head of a rule."""
    if len(line) > LINE_LIMIT:
        return
    words = line.split()
    if match := _SET.fullmatch(line):
        _assign(make, match, start, sure=sure)
    elif words[:1] == ["export"]:
        make.exported |= set(words[1:])
    elif words[:1] == ["unexport"]:
        make.exported -= set(words[1:])
        for name in words[1:]:
            make.set_at.pop(name, None)
    elif match := _RULE.fullmatch(line):
        rows = [(start, match["rest"].partition(";")[2])] if ";" in match["rest"] else []
        recipes.append((tuple(match["targets"].split()), rows))


def _assign(make: Make, match: re.Match[str], line: int, *, sure: bool) -> None:
    name, value = match["name"], match["value"]
    if "unexport" in match["words"]:
        make.set_at.pop(name, None)
        return
    if not make.shell_like:
        _taken(make, line, make_dollars.commands(value, make.values))
    comment = re.search(r"\s+#", value)
    value = value[: comment.start()] + " " if comment else value.rstrip()
    value = make_text.expand(value, make.values)
    if match["operator"] == "+=":
        value = f"{make.values.get(name, UNKNOWN)} {value}"
    if match["targets"]:
        make.values.setdefault(name, value)
        _for_targets(make, match, value, line)
        return
    make.values[name] = value
    if "export" in match["words"]:
        make.exported.add(name)
    make.set_at[name] = (value, line, sure)


def _for_targets(make: Make, match: re.Match[str], value: str, line: int) -> None:
    name, targets = match["name"], match["targets"].split()
    for target in targets:
        make.private.setdefault(target, {})[name] = value
    if "export" in match["words"]:
        make.targeted += [(target, Given(name, value, line)) for target in targets]
        record(make, name, value, line, False, how="export", way=f"target {targets[0]}")
    elif is_read(name) and not make.every:
        record(make, name, value, line, False, how="local", way=f"target {targets[0]}")


def _ref(make: Make, line: int) -> Ref:
    return Ref(make.out.label, f"line {line}", make.lines[line - 1].strip()[:QUOTE_LIMIT])


def record(make: Make, name: str, value: str, line: int, sure: bool, how: How | None = None, way: str = "") -> None:
    chosen: How = how or ("export" if make.every or name in make.exported else "local")
    ref = _ref(make, line)
    stripped = value.strip()
    if chosen == "export" and is_read(name):
        quoted = len(stripped) > 1 and stripped[0] in "\"'" and stripped[-1] == stripped[0]
        if quoted:
            why = f"make does not take quotes off: the value is {stripped} with its quotes"
            make.out.lost.append(Lost(name, ref, why, f"Write: export {name} := {stripped[1:-1]}"))
            stripped = stripped[1:-1]
        elif value != stripped and not make.shell_like and stripped and not re.fullmatch(r"[-+]?\d+", stripped):
            why = f"make keeps the blanks in front of the comment: the value is '{stripped}' and blanks"
            make.out.lost.append(Lost(name, ref, why, "Put the comment on a line of its own."))
    known = None if UNKNOWN in stripped else stripped
    used = name in make.used
    make.out.assignments.append(
        Assignment(name, known, ref, make.out.label, chosen, used, sure, None, stripped if known is None else "", way)
    )


def recipe(make: Make, body: list[tuple[int, str]], given: list[Given], values: dict[str, str]) -> None:
    """The lines of a recipe: each with its continuations a script, or all together with .ONESHELL."""
    scripts: list[tuple[int, list[str]]] = []
    continued = False
    for line, written in body:
        text = written if continued else written.lstrip("@-+ ")
        if scripts and (continued or make.one_shell):
            first, rows = scripts[-1]
            rows += [""] * (line - first - len(rows)) + [text]
        else:
            scripts.append((line, [text]))
        continued = text.rstrip().endswith("\\")
    starts = [_run(make, first, rows, given, values) for first, rows in scripts]
    launched = [bool(found.note) for found in starts]
    run = f"recipe of line {body[0][0]}" if body else ""
    make.started |= {run} if any(launched) else set()
    for (first, rows), starts_ranks in zip(scripts, launched, strict=True):
        if starts_ranks and not make.shell_like:
            text = "\n".join(rows)
            _taken(make, first, (*make_dollars.variables(text, make.values), *make_dollars.commands(text, make.values)))
    for index, found in enumerate(starts):
        later = any(launched[index + 1 :])
        for a in (_defined(make, a) for a in found.assignments):
            alone = not launched[index] and later and a.how in {"export", "local"}
            if alone and is_read(a.name):
                why = "each line of a recipe is a shell of its own: the next line does not see it"
                fix = "Join the lines with && \\, or write export at the top of the Makefile."
                make.out.lost.append(Lost(a.name, a.ref, why, fix))
            scope = f"{make.out.label}:{a.ref.locator}" if found.production else a.scope
            make.out.production |= {scope} if found.production else set()
            how: How = "build" if alone and a.how == "local" else a.how
            way = f"{run}, {a.way}" if a.way else run
            make.out.assignments.append(a._replace(how=how, scope=scope, way=way))
        exported = {item.name: item.line for item in given}
        own_list = len({a.name for a in found.assignments if a.how == "export" and in_family(a.name)}) > 1
        make.reached |= exported.keys() - {lost.name for lost in found.lost} if launched[index] else set()
        for lost in found.lost:
            chosen = make.kept_back if own_list and exported.get(lost.name) == lost.ref.line else make.out.lost
            chosen += [lost] if lost not in chosen else []
        make.out.launches += found.launches
        make.out.clashes += [clash for clash in found.clashes if clash not in make.out.clashes]
        make.out.torch, make.out.nccl = make.out.torch or found.torch, make.out.nccl or found.nccl


def _taken(make: Make, first: int, found: Iterable[make_dollars.Taken]) -> None:
    for name, offset, why, fix in found:
        lost = Lost(name, _ref(make, first + offset), why, fix)
        if lost not in make.out.lost:
            make.out.lost.append(lost)


def _defined(make: Make, assignment: Assignment) -> Assignment:
    """A setting that a recipe takes from a variable (`$(FLAGS) torchrun`) stands where that variable is set."""
    if assignment.name in assignment.ref.quote:
        return assignment
    for value, line, _ in make.set_at.values():
        if re.search(rf"(?<!\w){assignment.name}=", value):
            return assignment._replace(ref=_ref(make, line))
    return assignment


def _run(make: Make, first: int, rows: list[str], given: list[Given], values: dict[str, str]) -> SettingsFile:
    text = make_text.expand("\n".join(rows), values).replace(UNKNOWN, "$UNKNOWN")
    return run_script(text, make.out.label, first, make.lines, given)
