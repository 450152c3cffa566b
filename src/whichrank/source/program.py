"""Python programs: what they put into os.environ and into the environments of their children, and when."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from msgspec import Struct, field

from whichrank.facts.variables.environment import catalogue, counts, in_family, is_read, read_again, turned, unread
from whichrank.facts.variables.releases import Release, release_in
from whichrank.facts.variables.values import problem
from whichrank.model.evidence import Ref
from whichrank.records.launches import Told
from whichrank.records.settings import UNKNOWN, Assignment, Late, Lost, SettingsFile
from whichrank.source import _by_rank, _meeting, _order, _sizes, _timeouts, rank_numbers
from whichrank.source._children import Child, children
from whichrank.source._constants import Constants
from whichrank.source._environ import environ_names, removed, sets
from whichrank.source._thrown_away import wasted
from whichrank.source.alternatives import in_programs as ways_of
from whichrank.source.nodes import last_name
from whichrank.source.places import drawn_options, left_as_text, port_ranges, texts_of_objects
from whichrank.source.places.early_copies import missed
from whichrank.source.places.host_loops import HostLoops
from whichrank.source.places.late_dictionaries import filled_late
from whichrank.source.shell.embedded import Given, run_command, run_script

KIND = "python"
QUOTE_LIMIT = 300
_PIN = re.compile(r"(?:torch|nvidia-nccl-cu\d\d)==|nvcr\.io/nvidia/pytorch:|pytorch/pytorch:")
_ONLY_EXPORTS = re.compile(r"\s*export\s[^;&|\n]*(?:(?:;|&&)\s*(?:export\s[^;&|\n]*)?)*")
_EXPORT = re.compile(r"\s*export\s+[A-Z]\w*=")
_CLIENTS = frozenset({"ssh", "rsh", "pdsh", "clush", "pssh", "parallel-ssh", "kubectl", "oc"})
_PLAIN = re.compile(r"\s*([A-Z]\w*)=\S*\s*")


def read(text: str, label: str, first_line: int = 1) -> SettingsFile:
    """What a program sets, and what it sets too late. A program that does not parse is said to be so."""
    out = SettingsFile.empty(label, KIND)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the program are not ours to report
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        out.note = f"not a Python program that this Python can parse: {type(error).__name__}"
        out.unread = True
        return out
    program = _Program(out, text.split("\n"), first_line, tree)
    program.read()
    return out


def _taken_out(tree: ast.Module) -> Iterator[str]:
    """`env.pop("NAME", None)`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
        ):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


class _Program(Struct):
    out: SettingsFile
    lines: list[str]
    first_line: int
    tree: ast.Module
    constants: Constants = field(default_factory=Constants)
    own: dict[str, ast.AST] = field(default_factory=dict)
    """Variables that the program sets for itself, by the node that does."""
    release: Release = field(default_factory=Release)
    recorded: set[tuple[str, Ref]] = field(default_factory=set)
    rows: dict[str, int] | None = None
    """Name -> the line that has NAME=, or 0 for several."""
    ways: ways_of.Ways = field(default_factory=dict)
    loops: HostLoops | None = None
    repeated: drawn_options.Repeated | None = None
    taken_out: set[str] = field(default_factory=set)
    """Names that the program takes out of some environment."""

    def ref(self, node: ast.AST | int) -> Ref:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        quote = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return Ref(self.out.label, f"line {line + self.first_line - 1}", quote[:QUOTE_LIMIT])

    def read(self) -> None:
        dead = set(_dead(self.tree))
        self.constants = Constants.of(self.tree)
        names = environ_names(self.tree)
        self.ways = ways_of.alternatives(self.tree, self.constants)
        gone = removed(self.tree, names)
        self.taken_out = set(_taken_out(self.tree))
        given: dict[str, tuple[ast.expr, ast.AST]] = {}
        for node in ast.walk(self.tree):
            if node in dead:
                continue
            for name, value, place in sets(node, names, self.constants):
                given[name] = value, place
                if gone.get(name, 0) <= getattr(place, "lineno", 0):
                    self.own.setdefault(name, place)
                    self.record(name, value, place, self.out.label, sure=id(node) not in self.ways, what="os.environ")
            self.texts(node)
        self.numbers(given)
        for child in children(self.tree, self.constants, names):
            if child.node not in dead:
                self.child(child)
        self.unused_copies(names, dead)
        self.too_early(names, dead)
        for found_here in (
            _by_rank.differ(self.tree, self.constants, names, self.ref),
            _timeouts.wrong(self.tree, self.constants, self.ref),
            _meeting.own(self.tree, self.constants, names, self.ref),
        ):
            self.out.clashes += [clash for clash in found_here if clash not in self.out.clashes]
        self.out.launches += _sizes.launches(self.tree, self.constants, names, self.ref, self.lines)
        self.late(names, dead)
        self.out.torch, self.out.nccl = self.release

    def unused_copies(self, names: frozenset[str], dead: set[ast.AST]) -> None:
        """Settings in copies that nobody gets, and ranks as calls are told them."""
        for found in wasted(self.tree, self.constants, names):
            for name, _, place in found.pairs:
                if counts(name) and place not in dead:
                    fix = f"Write os.environ['{name}'] = …, or hand the copy over: env=…."
                    self.out.lost.append(Lost(name, self.ref(place), found.why, fix))
        for node in ast.walk(self.tree):
            for option, value in port_ranges.in_command(node):
                self.port(option, value, self.ref(node))
            if isinstance(node, ast.Call) and last_name(node.func) == "init_process_group" and node not in dead:
                told = {k.arg: (k.value, k.value) for k in node.keywords if k.arg}
                self.numbers({n.upper(): told[n] for n in ("rank", "world_size") if n in told})

    def too_early(self, names: frozenset[str], dead: set[ast.AST]) -> None:
        """Environments that processes get before the program has set what they need."""
        started = [c for c in children(self.tree, self.constants, names) if c.starts and c.node not in dead]
        given = [(c, c.given_at) for c in started if isinstance(c.given_at, ast.expr)]
        found = list(filled_late(self.tree, [(c.node, at) for c, at in given]))
        if len(given) == len(started) and not self.joins():
            passed = [(at, {name for name, _, _ in c.pairs}) for c, at in given]
            found += missed(self.tree, self.constants, names, self.own, passed)
        for each in found:
            if counts(each.name):
                fix = f"Set {each.name} first, or put it into that dictionary."
                self.out.lost.append(Lost(each.name, self.ref(each.place), each.why, fix))

    def record(self, name: str, value: ast.expr, node: ast.AST, scope: str, *, sure: bool, what: str) -> None:
        ref = self.ref(node)
        if what == "os.environ" or is_read(name) or in_family(name) or turned(name):
            self.check_type(name, value, node, what)
        if name == "LOCAL_RANK" and (clash := rank_numbers.not_local(name, ast.unparse(value), ref)) is not None:
            self.out.clashes.append(clash)
        text = self.constants.text(value)
        known = None if UNKNOWN in text else text
        self.port(name, value, ref)
        if (name, ref) not in self.recorded:
            self.as_text(name, value, ref)
        sure = sure and name not in self.taken_out
        if (name, ref) not in self.recorded:
            self.recorded.add((name, ref))
            partial = "" if known is not None else text
            way = self.ways.get(id(node), ways_of.ALWAYS)
            self.out.assignments.append(
                Assignment(name, known, ref, scope, "python", False, sure, None, partial, way.name, way.asked)
            )

    def port(self, name: str, value: ast.expr, ref: Ref) -> None:
        """A port that is computed, and may become a number that is none."""

        def known(variable: str) -> int | None:
            text = self.constants.text(ast.Name(variable))
            return int(text) if re.fullmatch(r"\d{1,9}", text) else None

        most = 0
        if port_ranges.NAMED.fullmatch(name.lstrip("-").replace("-", "_")) and UNKNOWN in self.constants.text(value):
            most = port_ranges.in_program(self.constants.resolve(value), known)
        clash = port_ranges.clash(name, most, ref)
        if most and clash not in self.out.clashes:
            self.out.clashes.append(clash)

    def as_text(self, name: str, value: ast.expr, ref: Ref) -> None:
        """Texts of objects, and commands that no shell runs."""
        variable = catalogue().get(name)
        what = texts_of_objects.kind(value, self.constants, self.tree) if variable is not None else ""
        lost = left_as_text.lost(name, self.constants.text(value), ref, "Python")
        if what == "list":
            why = "the text of a list has brackets and quotes: ['a', 'b']"
            lost = Lost(name, ref, why, "Join the names: ','.join(…).")
        elif what == "bool" and variable is not None and problem(variable, "True", ()) is not None:
            why = "the text of a truth value is 'True' or 'False', which is not read as 1 or 0"
            lost = Lost(name, ref, why, "Write str(int(…)).")
        if lost is not None and lost not in self.out.lost:
            self.out.lost.append(lost)

    def check_type(self, name: str, value: ast.expr, node: ast.AST, what: str) -> None:
        """Values of an environment that are no strings."""
        known = self.constants.resolve(value)
        number = isinstance(known, ast.Constant) and not isinstance(known.value, str) and known.value is not None
        made = isinstance(known, ast.Call) and isinstance(known.func, ast.Name) and known.func.id in {"int", "len"}
        none = isinstance(known, ast.Constant) and known.value is None and what == "os.environ"
        if number or made or none or texts_of_objects.of_object(value, self.constants):
            why = f"{what} takes strings only: this raises TypeError"
            lost = Lost(name, self.ref(node), why, f"Write the value as a string: str({ast.unparse(value)}).", "error")
            if lost not in self.out.lost:
                self.out.lost.append(lost)

    def child(self, child: Child) -> None:
        """A process that is started, or an environment that is handed to something which starts them."""
        scope = f"{self.out.label}:children"
        self.numbers({name: (value, node) for name, value, node in child.pairs})
        given = []
        for name, value, node in child.pairs:
            if in_family(name) or is_read(name) or name in unread() or turned(name):
                self.record(name, value, node, scope, sure=True, what="an environment")
            elif child.starts:
                self.check_type(name, value, node, "an environment")
                self.port(name, value, self.ref(node))
            own = drawn_options.is_own_name(value, self.constants)
            given.append(Given(name, self.constants.text(value), getattr(node, "lineno", 1), own=own))
        if child.fresh and child.starts:
            self.left_behind(child)
        elif child.starts:
            self.put(child)
        inherited = [Given(n, UNKNOWN, getattr(p, "lineno", 1)) for n, p in self.own.items() if child.lets_through(n)]
        if child.words is not None:
            words = [(text, text, line) for text, line in child.words]
            who = "a list of words"
            found = run_command(words, self.out.label, self.lines, [*inherited, *given], literal=who)
            if found.note or _own_interpreter(child.node):
                self.replaced(child)
            self.of_a_client(child)
            self.rounds(child, " ".join(text for text, _ in child.words), found)
            self.take(found, scope, child.node)
        elif child.script:
            text, line = child.script
            found = run_script(
                text.replace(UNKNOWN, "$UNKNOWN"), self.out.label, line, self.lines, [*inherited, *given]
            )
            if _ONLY_EXPORTS.fullmatch(text):
                self.gone_at_once(found)
            else:
                self.rounds(child, text, found)
                if text.startswith("ray "):
                    passed = {name for name, _, _ in child.pairs}
                    found.lost[:] = [lost for lost in found.lost if lost.name not in passed]
                self.take(found, scope, child.node)

    def rounds(self, child: Child, text: str, found: SettingsFile) -> None:
        """A command that goes to every host of a list, or that each host runs with its own name in it."""
        call = child.node
        if not found.launches or not isinstance(call, ast.Call) or not call.args:
            return
        command = self.constants.resolve(call.args[0])
        self.loops = self.loops or HostLoops(self.tree)
        if self.loops.hold(call, command, text):
            self.repeated = self.repeated or drawn_options.Repeated(self.tree, self.constants)
            parts = [part for part in drawn_options.parts(command, self.constants) if not part.is_address]
            drawn = [(part.option, made) for part in parts if (made := self.repeated.drawn(part.node)) is not None]
            own = drawn_options.of_each_round(command, self.constants, self.loops.around(call))
            drawn += [(part.option, part.node) for part in own]
            for launch in found.launches:
                if launch.nodes is not None and launch.nodes.number == 1:
                    continue  # each host has a job of its own
                launch.everywhere = launch.spread = True
                launch.drawn = tuple(Told(option, "", self.ref(made)) for option, made in drawn[:1]) or launch.drawn
        elif text.split(" ", 1)[0].rsplit("/", 1)[-1] not in _CLIENTS:
            for part in drawn_options.named_after_itself(command, self.constants):
                for launch in found.launches:
                    launch.itself = (*launch.itself, Told(part.option, "", self.ref(part.node)))

    def numbers(self, given: dict[str, tuple[ast.expr, ast.AST]]) -> None:
        clash = rank_numbers.in_program(given, self.constants, self.ref)
        if clash is not None and clash not in self.out.clashes:
            self.out.clashes.append(clash)

    def put(self, child: Child) -> None:
        """`os.putenv` does not change os.environ: who gets a copy of that goes without."""
        given = [k.value for k in child.node.keywords if k.arg == "env"] if isinstance(child.node, ast.Call) else []
        if not given or (isinstance(given[0], ast.Constant) and given[0].value is None):
            return
        passed = {name for name, _, _ in child.pairs}
        for name, node in self.own.items():
            if isinstance(node, ast.Call) and last_name(node.func) == "putenv" and counts(name) and name not in passed:
                why = "os.putenv does not change os.environ, and env= is made of that"
                lost = Lost(name, self.ref(node), why, f"Write: os.environ['{name}'] = …")
                if lost not in self.out.lost:
                    self.out.lost.append(lost)

    def replaced(self, child: Child) -> None:
        """`env={…}` without os.environ: the ranks get these variables and nothing else."""
        passed = "PATH" in {name for name, _, _ in child.pairs} or child.lets_through("PATH")
        if passed or child.given_at is None:
            return
        why = "the dictionary replaces the whole environment: PATH, LD_LIBRARY_PATH and HOME don't reach the ranks"
        lost = Lost("env", self.ref(child.given_at), why, "Write env={**os.environ, …}.")
        if lost not in self.out.lost:
            self.out.lost.append(lost)

    def of_a_client(self, child: Child) -> None:
        """`Popen(["ssh", host, …], env=…)`: the client on this host gets it, and the ranks on the other don't."""
        words = [text for text, _ in child.words or ()]
        client = words[0].rsplit("/", 1)[-1] if words else ""
        if client not in _CLIENTS or child.given_at is None or any("SendEnv" in word for word in words):
            return
        for name, _, node in child.pairs:
            if counts(name) and not any(name in word for word in words):
                why = f"env= is the environment of {client} here, which carries no variables to the other host"
                lost = Lost(name, self.ref(node), why, f"Put it into the command: env {name}=… torchrun ….")
                if lost not in self.out.lost:
                    self.out.lost.append(lost)

    def gone_at_once(self, found: SettingsFile) -> None:
        """`os.system("export …")`: the shell that is started gets it, and ends."""
        for a in found.assignments:
            if counts(a.name):
                why = "the call starts a shell of its own, and the variable ends with that"
                self.out.lost.append(Lost(a.name, a.ref, why, f"Write: os.environ['{a.name}'] = …"))

    def joins(self) -> bool:
        """The program is a rank itself."""
        remote = {inner for node in ast.walk(self.tree) if _is_remote(node) for inner in ast.walk(node)}
        return any(
            isinstance(node, ast.Call) and last_name(node.func) in {"init_process_group", "Accelerator"}
            for node in ast.walk(self.tree)
            if node not in remote
        )

    def left_behind(self, child: Child) -> None:
        """The program sets os.environ, and its workers get another environment."""
        passed = {name for name, _, _ in child.pairs}
        joins = self.joins()
        for name, node in self.own.items():
            if name in catalogue() and name not in passed and not child.lets_through(name) and not joins:
                self.out.lost.append(
                    Lost(name, self.ref(node), child.why, f"Put {name} into that environment.", "warning")
                )

    def take(self, found: SettingsFile, scope: str, call: ast.AST | None = None) -> None:
        """What a command line of the program sets or loses; lines are the program's already."""
        shift = self.first_line - 1
        way = self.ways.get(id(call), ways_of.ALWAYS)
        for a in found.assignments:
            if in_family(a.name) or is_read(a.name) or turned(a.name):
                line = a.ref.line
                ref = self.ref(line) if shift else a.ref
                ref = ref if a.name in ref.quote else self.spelled(a.name) or ref
                self.out.assignments.append(
                    a._replace(ref=ref, scope=scope, way=a.way or way.name, asked=a.asked or way.asked)
                )
        self.out.lost += [lost for lost in found.lost if lost not in self.out.lost]
        self.out.clashes += [clash for clash in found.clashes if clash not in self.out.clashes]
        self.out.launches += found.launches
        self.release |= Release(found.torch, found.nccl)

    def spelled(self, name: str) -> Ref | None:
        """The one line that spells a setting out which the text of a command has from elsewhere."""
        if self.rows is None:
            self.rows = {}
            for number, row in enumerate(self.lines, 1):
                for found in re.findall(r"(?<!\w)([A-Z][A-Z0-9_]{2,80})=", row[:2000]):
                    self.rows[found] = 0 if found in self.rows else number
        return self.ref(self.rows[name]) if self.rows.get(name) else None

    def texts(self, node: ast.AST) -> None:
        """Pins, and lines of set-up scripts (`setup=["export …"]`) among the strings of the program."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PIN.search(node.value):
            if len(node.value) < 200 and "\n" not in node.value:
                self.release |= release_in(node.value)
        elif isinstance(node, ast.keyword) and node.arg and re.search(r"setup|prologue|pre_?run|script", node.arg):
            value = self.constants.resolve(node.value)
            for item in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
                if isinstance(item, ast.Constant) and isinstance(item.value, str) and _EXPORT.match(item.value):
                    found = run_script(item.value, self.out.label, item.lineno, self.lines)
                    self.take(found, f"{self.out.label}:children")
                elif isinstance(item, ast.Constant) and (plain := _PLAIN.fullmatch(str(item.value))):
                    why = "a line of the script that does not export it: the programs below don't see it"
                    if counts(plain[1]):
                        self.out.lost.append(Lost(plain[1], self.ref(item), why, f"Write: export {plain.group()}"))

    def late(self, names: frozenset[str], dead: set[ast.AST]) -> None:
        try:
            order = _order.too_late(self.tree, names, self.constants)
        except RecursionError:
            order, self.out.note = [], "nested too deeply to follow the order of its statements"
        for found in order:
            if found.node not in dead:
                late = Assignment(found.name, None, self.ref(found.node), self.out.label, "python")
                event = self.ref(found.event_node)
                self.out.late.append(Late(late, found.event, event, sure=not read_again(found.name)))


def _own_interpreter(call: ast.AST) -> bool:
    """`[sys.executable, "train.py"]`, as launchers start their ranks."""
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    words = first.elts if isinstance(first, ast.List | ast.Tuple) else []
    return bool(words) and ast.unparse(words[0]) == "sys.executable" and "-c" not in map(ast.unparse, words[1:2])


def _is_remote(node: ast.AST) -> bool:
    """A function or class that Ray's workers run: `@ray.remote(num_gpus=1)`."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(re.search(r"\bremote\b", ast.unparse(decorator)) for decorator in node.decorator_list)


def _pretends(func: ast.expr) -> bool:
    """`mock.patch.dict(os.environ, …)` and `monkeypatch.setenv(…)`: environments of tests."""
    owner = ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""
    return (
        owner.endswith(("patch", "monkeypatch")) and isinstance(func, ast.Attribute) and func.attr in {"dict", "setenv"}
    )


def _dead(tree: ast.AST) -> Iterator[ast.AST]:
    """What never runs in a job: behind `if False`, `if TYPE_CHECKING`, after a return, and what tests pretend."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            never = isinstance(node.test, ast.Constant) and not node.test.value
            never = never or (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
            always = isinstance(node.test, ast.Constant) and bool(node.test.value)
            for statement in node.body if never else node.orelse if always else []:
                yield from ast.walk(statement)
        if isinstance(node, ast.Call) and _pretends(node.func):
            yield from ast.walk(node)
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            ended = False
            for statement in body if isinstance(body, list) else []:
                if ended:
                    yield from ast.walk(statement)
                ended = ended or isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break)
