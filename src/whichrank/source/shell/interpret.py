"""A script followed as a shell would run it: what each program that it starts gets to see."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cached_property

from whichrank.facts.variables.environment import catalogue, counts
from whichrank.facts.variables.releases import Release
from whichrank.model.evidence import Ref
from whichrank.records.launches import Launch
from whichrank.records.settings import UNKNOWN, Clash, Lost, SettingsFile
from whichrank.source import rank_numbers
from whichrank.source.alternatives import in_scripts as choices
from whichrank.source.shell import (
    batch,
    branches,
    conditions,
    directives,
    documents,
    held,
    launchers,
    starting,
    texts,
)
from whichrank.source.shell.allocation import Allocation
from whichrank.source.shell.builtins import BUILTINS, printf_v
from whichrank.source.shell.state import CONTAINER_PREFIXES, NESTING_LIMIT, Early, Environment, Made, Variable, Written
from whichrank.source.shell.syntax import (
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Simple,
    Step,
    parse,
)
from whichrank.source.shell.tokens import Word
from whichrank.source.shell.values import function_variables, outputs, piped
from whichrank.source.shell.values.function_variables import Frame, called
from whichrank.source.shell.values.rounds import Rounds
from whichrank.source.shell.words import MOST_FIELDS, Field, Value, array, at_home, expand, fields, pieces

QUOTE_LIMIT = 300
STEP_LIMIT = 40_000
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_NAMES = re.compile(r"(?:\$[{(]?[!#]?|\[\$?\{?)(\w+)")
_TELLING = 3
"""Known letters of a command's name; with fewer it could be any function."""
_DECLARE = frozenset({"export", "declare", "typeset", "readonly", "local"})
_PRINTS = frozenset({
    "echo", "printf", "cat", "tee", "grep", "sed", "awk", "[", "[[", "test", "((", "info", "log", "logger", "alias",
    "trap", "true", "false", ":", "warn", "die", "say", "banner",
})  # fmt: skip
Neighbour = Callable[[str], tuple[str, str] | None]
"""Path as a script names it -> label and text of that file, where it is at hand."""


class Interpreter:
    """One script, followed from its first command to its last."""

    def __init__(
        self, out: SettingsFile, lines: list[str], first_line: int = 1, neighbour: Neighbour | None = None
    ) -> None:
        self.out, self.lines, self.first_line, self.neighbour = out, lines, first_line, neighbour
        self.label = out.label  # of the file that is read at present: the script, or one that it sources
        self.made: list[Made] = []
        self.known: dict[tuple[str, int, str, str], Made] = {}
        self.functions: dict[str, Function] = {}
        self.called: set[str] = set()
        self.active: list[str] = []
        self.release = Release()
        self.quotes: dict[str, list[str]] = {}  # lines of sourced files
        self.places: dict[int, str] = {}  # assignments that stand in a sourced file -> that file
        self.launches: list[int] = []
        self.dynamic = False  # it runs commands whose names it computes
        self.clock = self.nesting = 0
        self.target = ""  # where the commands of a group write to
        self.muted = False  # inside a command that only prints
        self.on_every_host = self.background = 0
        self.fans_out = False  # what runs on every host goes to more than one for sure
        self.job = self.jobs = 0  # which of the background jobs this is, and how many there were
        self.running: list[tuple[int, Launch]] = []  # launches in the background since the last `wait`
        self.by_slurm = False
        self.indoors = 0  # inside containers with a network of their own
        self.allocation = Allocation()  # what the job asks its scheduler for
        self.host = ""  # that ssh goes to
        self.files: dict[str, Written] = {}  # files that the script writes, by name
        self.scripts: dict[str, tuple[str, int]] = {}  # scripts among them -> text and first line
        self.rounds = Rounds()
        self.unknown_rounds: set[str] = set()  # variables of loops over what only a run would tell
        self.per_task: dict[str, tuple[Early, ...]] = {}  # variables made of what differs from task to task
        self.early: tuple[Early, ...] = ()  # such values that were put in before the tasks began
        self.early_files: dict[str, tuple[Early, ...]] = {}  # scripts that hold them, by name
        self.expanded_there = False  # the words of the present command were put together on the hosts that run it
        self.randoms: dict[str, int] = {}  # variables that every host sets to a number of its own
        self.own_names: set[str] = set()  # variables that hold the name of the host that runs the script
        self.hostnames: dict[str, int] = {}  # variables that every host sets to its own name
        self.counted: dict[str, tuple[int, str]] = {}  # variables that count lines of a file of hosts -> line and file
        self.last_hosts: dict[str, int] = {}  # variables that hold the last host of the job's list
        self.numbers: dict[str, tuple[str, int]] = {}  # RANK and WORLD_SIZE as they are written, with the line
        self.way, self.asked = "", False  # the branch that is followed, and whether somebody has to ask for it
        self.arguments: set[str] = set()  # variables that hold what the user of the script asks for
        self.dumps: dict[str, str] = {}  # variables and functions that print the environment -> the command that does
        self.frames: list[Frame] = []  # the functions that are followed at present
        self.piped = ""  # what the command before this one in a pipeline has printed
        self.outputs: list[str] | None = None  # what the function that is followed for its output has printed

    def run(self, text: str) -> SettingsFile:
        script = parse(text, self.first_line)
        env = Environment()
        end = batch.last_directive(text, self.first_line)
        for comment in script.comments:
            directives.directive(self, comment.text, comment.line, env, late=comment.line > end)
        self.by_slurm = any(comment.text.startswith("#SBATCH") for comment in script.comments)
        held.count_hosts(self, env)
        self.walk(script.body, env, sure=True)
        self.left_over(env)
        if not script.whole:
            self.out.note = "nested too deeply to follow"
        from whichrank.source.shell.outcome import conclude

        return conclude(self)

    def left_over(self, env: Environment) -> None:
        """Functions that nothing here calls: of a library others call them, of a script nobody does."""
        library = not self.launches and not self.called
        before = len(self.made)
        if library or self.dynamic:
            for name in list(self.functions):
                if name not in self.called:
                    called(self, self.functions[name].body, env.copy(), _PRINTS, sure=False)
        for made in self.made[before:] if not library else ():
            made.reached = True  # when they are called is not known

    def ref(self, line: int, label: str = "") -> Ref:
        label = label or self.label
        lines = self.quotes.get(label) if label != self.out.label else self.lines
        index = line - (self.first_line if label == self.out.label else 1)
        quote = lines[index].strip() if lines and 0 <= index < len(lines) else ""
        return Ref(label, f"line {line}", quote[:QUOTE_LIMIT])

    @cached_property
    def dumped_files(self) -> dict[str, str]:
        """Files that hold a print of the environment -> the command that made it."""
        return launchers.files_of_prints(self.lines)

    @property
    def away(self) -> bool:
        """Another host than the one that began the script runs this, or every host."""
        return bool(self.on_every_host or self.host)

    # --- variables ---

    def lookup(self, env: Environment) -> Callable[[str], Value | None]:
        def find(name: str) -> Value | None:
            variable = env.variables.get(name)
            if variable is None:
                return None
            if not self.muted:
                for made in variable.made:
                    made.used = True
            return variable.value

        return find

    def assign(self, name: str, value: Value, line: int, env: Environment, *, sure: bool, exported: bool) -> None:
        self.clock += 1
        before = env.variables.get(name)
        exported = exported or env.export_all or (before is not None and before.exported)
        plain = name
        for prefix in CONTAINER_PREFIXES:
            plain = plain.removeprefix(prefix)
        key = (self.label, line, plain, value.text)
        made = self.known.get(key)
        if made is None:
            made = Made(plain, value, line, sure, "local", env.level, self.clock, way=self.way, asked=self.asked)
            self.known[key] = made
            self.made.append(made)
            if self.label != self.out.label:
                self.places[id(made)] = self.label
        if not self.asked and made.asked:  # a function that is also called outside of the branch
            made.way, made.asked = self.way, False
        if exported:
            made.how = "export"
        made.apart = made.apart or env.level > 0
        if before is not None and sure:
            self.drop(before, env, but=made)
        env.variables[name] = Variable(value, exported, (made,))
        if plain == "SLURM_EXPORT_ENV":
            env.slurm = None if "ALL" in value.text else frozenset(value.text.split(","))

    def drop(self, variable: Variable, env: Environment, but: Made | None = None) -> None:
        for made in variable.made:
            if made is not but and not made.reached and made.level == env.level and not made.used:
                made.dropped = True

    def export(self, name: str, env: Environment) -> None:
        function_variables.exported(self, name)
        variable = env.variables.get(name)
        if variable is not None:
            env.variables[name] = variable._replace(exported=True)
            for made in variable.made:
                made.how = "export"
        else:
            env.variables[name] = Variable(Value(UNKNOWN, fixed=False), True)

    # --- the tree ---

    def walk(self, steps: list[Step], env: Environment, *, sure: bool) -> None:
        usual: bool | None = None
        for index, step in enumerate(steps):
            self.clock += 1
            if env.ended or self.clock > STEP_LIMIT:
                return
            if step.after:  # `[ -n "$DEBUG" ] && export …`: whether the list gets here by default
                taken = usual if step.after == "&&" or usual is None else not usual
                with choices.taking(self, choices.place(self, [step]), taken):
                    self.step(steps, index, env, sure=sure and bool(taken))
            else:
                self.step(steps, index, env, sure=sure)
            one = choices.usual([Step(step.node)], self.lookup(env))
            usual = conditions.together(step.after, usual, one) if step.after else one

    def step(self, steps: list[Step], index: int, env: Environment, *, sure: bool) -> None:
        step = steps[index]
        here = env.copy(apart=True) if step.apart else env
        if piped.into_next(self, steps, index, here, sure=sure):
            return
        if step.apart and isinstance(step.node, Simple) and index + 1 < len(steps):
            following = steps[index + 1].node
            if isinstance(following, Simple) and (written := documents.tee_target(following)):
                self.target, kept = written, self.target
                self.node(step.node, here, sure=sure)
                self.target = kept
                return
        job = self.job
        if step.background:
            self.jobs += 1
            self.job = self.jobs
        self.background += step.background
        self.node(step.node, here, sure=sure)
        self.background -= step.background
        self.job = job
        if step.after:  # `cd x || exit` ends the script only if it fails
            here.ended = False

    def node(self, node: Node, env: Environment, *, sure: bool) -> None:
        if isinstance(node, Simple):
            own = [Step(node)]
            with choices.taking(self, choices.place(self, own), not choices.measures(own)):
                self.simple(node, env, sure=sure)
        elif isinstance(node, Group):
            kept, self.target = self.target, documents.written_to(node.redirects) or self.target
            inner = env.copy(apart=True) if node.subshell else env
            own = node.body if node.subshell else []
            with choices.taking(self, choices.place(self, own), not choices.measures(own)):
                self.walk(node.body, inner, sure=sure)
            self.target = kept
        elif isinstance(node, If):
            branches.condition(self, node, env, sure=sure)
        elif isinstance(node, Loop):
            kept, self.target = self.target, documents.written_to(node.redirects) or self.target
            branches.loop(self, node, env, sure=sure)
            self.target = kept
        elif isinstance(node, Case):
            branches.case(self, node, env, sure=sure)
        else:
            self.functions[node.name] = node
            if printed := outputs.prints_environment(node):
                self.dumps[node.name] = printed

    # --- commands ---

    def simple(self, node: Simple, env: Environment, *, sure: bool) -> None:
        count = 0
        while count < len(node.words) and _ASSIGNS.fullmatch(node.words[count].raw):
            count += 1
        if node.words:
            self.substitutions(node.words, env)
        if count == len(node.words):
            for word in node.words:
                self.assignment(word, env, sure=sure, exported=False)
            if node.redirects and not node.words:
                return
            return
        here = env.copy() if count else env
        for word in node.words[:count]:
            self.assignment(word, here, sure=sure, exported=True)
        first = node.words[count]
        if self.blanks(first.raw, node.words[count + 1 :], first):
            return
        program = first.raw.strip("\"'").rsplit("/", 1)[-1]
        self.muted, kept = program in _PRINTS, self.muted
        if program in _DECLARE:
            outputs.declared(self, node.words[count + 1 :], here)
            self.declare(program, node.words[count + 1 :], here, sure=sure)
        else:
            command = [f for word in node.words[count:] for f in fields(word, self.lookup(here))]
            there, self.expanded_there = self.expanded_there, self.away
            if command:
                self.command(self.not_set(command, first.raw), node, here, sure=sure)
            self.expanded_there = there
        self.muted = kept
        if here is not env:
            env.ended = env.ended or here.ended

    def substitutions(self, words: list[Word], env: Environment) -> None:
        """`OUT=$(torchrun …)` runs it; `: ${X:=v}` sets X."""
        for word in words:
            if "$" not in word.raw:
                continue
            for piece in pieces(word.raw):
                if piece.kind == "variable" and piece.operator in {":=", "="} and piece.text not in env.variables:
                    value = expand(piece.argument, self.lookup(env))._replace(fixed=False)
                    self.assign(piece.text, value, word.line, env, sure=True, exported=False)
                elif piece.kind == "command":
                    outputs.follow(self, piece.text, word.line, env)
                if piece.kind == "command" and re.search(r"torchrun|python|srun|mpirun|export ", piece.text):
                    texts.inner(self, piece.text, word.line, env.copy(apart=True), sure=True)

    def assignment(self, word: Word, env: Environment, *, sure: bool, exported: bool) -> None:
        match = _ASSIGNS.fullmatch(word.raw)
        if not match:
            return
        name, index, plus, raw = match.groups()
        before = env.variables.get(name)
        if raw.startswith("("):
            items, keys = array(raw, word.line)
            if not keys:
                items = tuple(filled for item in items for filled in self.filled(item, name, env))[:MOST_FIELDS]
            if plus and before is not None:
                if before.value.items is None:
                    return  # which elements it has was not known, and is not now
                items = (*before.value.items, *items)
            env.variables[name] = Variable(Value("", items=items, keys=keys, line=word.line), False)
            return
        if index:
            self.element(name, index[1:-1], Word(raw, word.line), env)
            return
        value = expand(at_home(raw), self.lookup(env))
        self.arguments |= {name} if choices.is_argument(raw) else set()
        held.take(self, name, raw, word.line, env)
        self.rounds.take(name, raw, word.line, sure=sure)
        self.unknown_rounds |= {name} if self.of_a_round(raw) else set()
        if name == "MASTER_ADDR" and (many := rank_numbers.names_many_hosts(raw)):
            self.clash(rank_numbers.not_one_host(name, many, self.ref(word.line)))
        printed = launchers.prints_environment(raw) or " ".join(launchers.prints_in(raw, self.dumps))
        if printed:
            self.dumps[name] = printed
        if plus:
            text = before.value.text if before is not None else UNKNOWN
            value = value._replace(text=text + value.text)
        self.assign(name, value, word.line, env, sure=sure, exported=exported)

    def of_a_round(self, raw: str) -> bool:
        """It is made of what a loop over hosts that only a run would tell goes through."""
        return bool(self.unknown_rounds) and not self.unknown_rounds.isdisjoint(_NAMES.findall(raw))

    def filled(self, item: Word, array_name: str, env: Environment) -> list[Word]:
        """An element of an array with the variables of this moment put in, where they are known.

        The elements of other arrays, and its own old ones (`A=("${A[@]}" b)`), are put in at any rate."""
        if "$" not in item.raw:
            return [item]
        lookup = self.lookup(env)
        found = fields(item, lookup)
        named = [part.text for part in pieces(item.raw) if part.kind == "variable"]
        arrays = [name for name in named if (value := lookup(name)) is not None and value.items is not None]
        if not arrays and array_name not in named and any(not f.known or "'" in f.text for f in found):
            return [item]
        return [Word(shlex.quote(field.text), field.line) for field in found]

    def clash(self, found: Clash) -> None:
        if found not in self.out.clashes:
            self.out.clashes.append(found)

    def element(self, name: str, index: str, item: Word, env: Environment) -> None:
        before = env.variables.get(name)
        old = before.value if before is not None and before.value.items is not None else Value("", items=())
        key = expand(index, self.lookup(env)).text
        value = Value("", items=(*(old.items or ()), item), keys=(*old.keys, key), line=item.line)
        env.variables[name] = Variable(value, False)

    def declare(self, program: str, words: list[Word], env: Environment, *, sure: bool) -> None:
        flags = "".join(w.raw for w in words if re.fullmatch(r"[-+][A-Za-z]+", w.raw))
        exports = (program == "export" or ("x" in flags and "+x" not in flags)) and "n" not in flags
        for index, word in enumerate(words):
            if self.blanks(word.raw.removeprefix("$"), words[index + 1 :], word, dollar=word.raw.startswith("$")):
                return
            if match := _ASSIGNS.fullmatch(word.raw):
                function_variables.made(self, program, flags, match[1], env)
                self.cut_short(word, words[index + 1 : index + 2])
                self.assignment(word, env, sure=sure, exported=exports)
                continue
            if documents.loads_file(word.raw):
                texts.include(self, documents.loads_file(word.raw), env, sure=sure, exported=True)
                continue
            for item in fields(word, self.lookup(env)):
                name, equals, value = item.text.partition("=")
                if equals and name != name.strip() and name.strip() in catalogue():
                    why = "a name ends with a blank here, which the shell refuses"
                    fix = f"Write: export {name.strip()}={value.strip()}"
                    self.lost(Lost(name.strip(), self.ref(item.line), why, fix, "error"))
                if item.text.startswith("-") or not re.fullmatch(r"[A-Za-z_]\w*", name):
                    continue
                if equals:
                    self.assign(name, Value(value), item.line, env, sure=sure, exported=exports)
                elif exports:
                    self.export(name, env)
                elif "n" in flags and program == "export" and name in env.variables:
                    env.variables[name] = env.variables[name]._replace(exported=False)
                    self.drop(env.variables[name], env)

    def cut_short(self, word: Word, following: list[Word]) -> None:
        """`export NAME=a, b` and `export NAME= a`: the value ends at the blank."""
        name, _, value = word.raw.partition("=")
        if (value and not value.endswith(",")) or not following or not counts(name):
            return
        if not re.match(r"[-#$\"'`]|[^=]*=", following[0].raw):
            why = f"the value ends at the blank: {following[0].raw} is no part of it"
            self.lost(Lost(name, self.ref(word.line), why, f"Write: export {name}={value}{following[0].raw}", "error"))

    def lost(self, found: Lost) -> None:
        if found not in self.out.lost:
            self.out.lost.append(found)

    def blanks(self, name: str, following: list[Word], word: Word, *, dollar: bool = False) -> bool:
        """`NAME = value` and `export $NAME=value`, which set nothing."""
        name, equals, _ = name.partition("=")
        apart = not equals and following[:1] != [] and following[0].raw == "="
        if name not in catalogue() or not (apart or (dollar and equals)):
            return False
        why = "a shell takes no blanks around =" if apart else f"$ in front of the name puts the value of {name} there"
        self.lost(Lost(name, self.ref(word.line), f"{why}: this sets nothing", f"Write: export {name}=value", "error"))
        return True

    def command(self, command: list[Field], node: Simple | None, env: Environment, *, sure: bool) -> None:
        program = launchers.base(command[0])
        redirects = node.redirects if node is not None else []
        self.called.update(f.text for f in command if f.text in self.functions)
        if program in self.functions:
            self.call(program, command, env, sure=sure)
        elif ways := self.functions_like(command[0].text):
            left = [env.copy() for _ in ways]
            for name, way in zip(ways, left, strict=True):
                self.call(name, command, way, sure=False)
            env.merge(left)
        elif program in BUILTINS:
            BUILTINS[program](self, command, env, sure)
        elif program == "printf" and printf_v(self, command, env, sure):
            return
        elif program in _PRINTS:
            texts.printed(self, command, redirects)
            outputs.keep(self, command, redirects, env)
        else:
            outputs.copied(self, command)
            starting.start(self, command, redirects, env, sure=sure)
        for redirect in redirects:
            if redirect.body and program in _PRINTS:
                texts.document(self, redirect, redirects, env)

    def functions_like(self, called: str) -> list[str]:
        """The functions that a command such as `"setup_$SITE"` may be."""
        if UNKNOWN not in called or len(called.replace(UNKNOWN, "")) < _TELLING:
            return []
        named = re.compile(".*".join(map(re.escape, called.split(UNKNOWN))))
        found = [name for name in self.functions if named.fullmatch(name)]
        self.called.update(found)
        return found

    def not_set(self, command: list[Field], first: str) -> list[Field]:
        """`$OPTIONS torchrun …`, `"${OPTIONS[@]}" A=1 torchrun …`: NAME=VALUE out of a variable is taken for the
        name of a program, and what follows for its arguments. First: how the first word is written."""
        count = 0
        if not first.lstrip('"').startswith("$"):
            return command
        while count + 1 < len(command) and re.match(r"[A-Z]\w*=", command[count].text):
            name = command[count].text.partition("=")[0]
            why = f"{first} stands in front, and the shell takes what comes out of it for the name of a program"
            if counts(name):
                self.lost(Lost(name, self.ref(command[count].line), why, f"Write: env {first} …", "error"))
            count += 1
        return command[count:]

    def call(
        self, name: str, command: list[Field], env: Environment, *, sure: bool, body: list[Step] | None = None
    ) -> None:
        """A function, or (its body given) a script that is run with arguments."""
        if name in self.active or len(self.active) > NESTING_LIMIT:
            return
        self.active.append(name)
        given = {str(i): Variable(Value(f.text, line=f.line), False) for i, f in enumerate(command[1:10], 1)}
        words = tuple(Word("'" + f.text.replace("'", "'\\''") + "'", f.line) for f in command[1:])
        given["@"] = Variable(Value(UNKNOWN, items=words), False)
        kept, rounds = {n: env.variables.get(n) for n in given}, set(self.unknown_rounds)
        self.unknown_rounds |= {str(i) for i, f in enumerate(command[1:10], 1) if self.of_a_round(f.raw)}
        for at, word in enumerate(command[1:10], 1):
            self.rounds.made_in.pop(str(at), None)
            if self.rounds.of_this_round(word.raw):
                self.rounds.made_in[str(at)] = self.rounds.loops[-1]
        env.variables.update(given)
        if body is None:
            called(self, self.functions[name].body, env, _PRINTS, sure=sure)
        else:
            self.walk(body, env, sure=sure)
        env.ended, self.unknown_rounds = False, rounds
        for n, variable in kept.items():
            env.variables.pop(n, None)
            if variable is not None:
                env.variables[n] = variable
        self.active.pop()
