"""Shell scripts and batch files: what they export, and what they only seem to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from whichrank.facts.environment import catalogue, in_family
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Baked, How, Lost, SettingsFile
from whichrank.source._words import Command, Comment, Word, commands, literal, plain

KIND = "shell"
QUOTE_LIMIT = 300
DEPTH_LIMIT = 3

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
_JSON_PAIR = r'"([A-Z][A-Z0-9_]*)"\s*:\s*"([^"\n]*)"'
_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "case", "esac", "in", "!",
    "time", "{", "}", "function", "exec", "nohup", "sudo", "command",
})  # fmt: skip
_BRANCH, _BRANCH_END = frozenset({"if", "case"}), frozenset({"fi", "esac"})
_DECLARE = frozenset({"export", "declare", "typeset", "readonly", "local"})
_PRINT = frozenset({"echo", "printf", "cat", "grep", "sed", "awk", "[", "[[", "test", "info", "log", "alias"})
# Options whose next word is NAME=VALUE for the program that is launched: mpirun, docker, kubectl, Apptainer…
_PASS = frozenset({"-x", "-e", "--env", "-E", "--set-env", "--export-env", "--container-env"})
_PASS_PAIR = frozenset({"-genv", "-env", "--genv"})
_SLURM = frozenset({"srun", "sbatch", "salloc"})
_BATCH = r"#(?:SBATCH\s.*?--export[= ]|PBS\s.*?-v\s+|\$\s.*?-v\s+)(\S+)"


def read(text: str, label: str, first_line: int = 1) -> SettingsFile:
    """What a script sets. Never raises: what is not understood is passed over."""
    reader = _Script(SettingsFile.empty(label, KIND), text.split("\n"), first_line)
    reader.walk(text, first_line, 0)
    return reader.finish(frozenset(_USED.findall(text)))


@dataclass(slots=True)
class _Script:
    out: SettingsFile
    lines: list[str]
    first_line: int
    exported: set[str] = field(default_factory=set)
    all_exported: bool = False
    branches: int = 0
    sure: bool = True

    def walk(self, text: str, first_line: int, depth: int) -> None:
        for part in commands(text, first_line):
            if isinstance(part, Comment):
                self.batch_option(part)
            else:
                self.command(part, depth)

    def finish(self, used: frozenset[str]) -> SettingsFile:
        """Shell variables that are exported somewhere later are exports; the rest stay local."""
        done = []
        for a in self.out.assignments:
            how: How = "export" if a.how == "local" and (self.all_exported or a.name in self.exported) else a.how
            done.append(Assignment(a.name, a.value, a.ref, a.scope, how, a.name in used, a.sure))
        self.out.assignments[:] = done
        return self.out

    def ref(self, line: int) -> Ref:
        index = line - self.first_line
        quote = self.lines[index].strip() if 0 <= index < len(self.lines) else ""
        return Ref(self.out.label, f"line {line}", quote[:QUOTE_LIMIT])

    def set(self, name: str, value: str | None, line: int, how: How) -> None:
        name = name.removeprefix("SINGULARITYENV_").removeprefix("APPTAINERENV_")
        self.out.assignments.append(Assignment(name, value, self.ref(line), self.out.label, how, sure=self.sure))

    def command(self, command: Command, depth: int) -> None:
        words = command.words
        while words and words[0].raw in _KEYWORDS:
            self.branches += (words[0].raw in _BRANCH) - (words[0].raw in _BRANCH_END)
            words = words[1:]
        self.sure = self.branches <= 0 and command.after not in {"&&", "||"}
        prefix = 0
        while prefix < len(words) and _ASSIGNED.fullmatch(words[prefix].raw):
            prefix += 1
        lone = prefix == len(words)
        for word in words[:prefix]:
            self.assign(word, "local" if lone else "export")
        words = words[prefix:]
        if words:
            self.run(words, command, depth)
        if command.heredoc:
            self.here_document(command, words, depth)

    def assign(self, word: Word, how: How) -> None:
        match = _ASSIGNED.fullmatch(word.raw)
        if match:
            self.set(match[1], None if match[2] else literal(match[3]), word.line, how)

    def run(self, words: list[Word], command: Command, depth: int) -> None:
        program = plain(words[0].raw).rsplit("/", 1)[-1]
        rest = words[1:]
        if program in _DECLARE:
            self.declare(program, rest)
        elif program == "set" and any(w.raw in {"-a", "allexport"} or w.raw.startswith("-a") for w in rest):
            self.all_exported = True
        elif program == "setenv" and len(rest) >= 2:
            self.set(rest[0].raw, literal(rest[1].raw), rest[0].line, "export")
        elif program in _PRINT:
            self.printed(rest, command)
        elif program not in {"make", "cmake"}:
            self.launch(program, rest, depth)

    def declare(self, program: str, words: list[Word]) -> None:
        flags = "".join(w.raw for w in words if w.raw.startswith("-"))
        exports = program == "export" or "x" in flags
        for word in words:
            if _ASSIGNED.fullmatch(word.raw):
                self.assign(word, "export" if exports else "local")
            elif exports and not word.raw.startswith("-"):
                self.exported.add(word.raw)

    def printed(self, words: list[Word], command: Command) -> None:
        """`echo NCCL_X=1 >> /etc/nccl.conf` writes a setting; other output sets nothing."""
        conf = _is_conf(command.target)
        if not conf and not _is_env_file(command.target):
            return
        for word in words:
            for line in plain(word.raw).replace("\\n", "\n").split("\n"):
                if match := _ASSIGNED.fullmatch(line.strip()):
                    self.set(
                        match[1],
                        None if "$" in match[3] else match[3],
                        word.line,
                        "conf" if conf else "export",
                    )
        if conf and words:
            self.out.baked.append(Baked(command.target, self.ref(words[0].line)))

    def launch(self, program: str, words: list[Word], depth: int) -> None:
        before = ""
        for index, word in enumerate(words):
            raw = word.raw
            option, _, value = raw.partition("=")
            if program in _SLURM and option == "--export":
                following = words[index + 1].raw if index + 1 < len(words) else ""
                self.slurm_export(plain(value or following), word.line, program)
            elif option in _PASS and value:
                self.passed(Word(value, word.line))
            elif before in _PASS:
                self.passed(word)
            elif before in _PASS_PAIR and index + 1 < len(words):
                self.set(raw, literal(words[index + 1].raw), word.line, "export")
            elif program == "env" and _ASSIGNED.fullmatch(raw):
                self.assign(word, "export")
            elif raw.startswith("-e") and _ASSIGNED.fullmatch(raw[2:]):
                self.assign(Word(raw[2:], word.line), "export")
            else:
                self.inside(word, depth)
            before = raw

    def passed(self, word: Word) -> None:
        """NAME=VALUE or NAME after an option that passes variables on; Apptainer takes a list of them."""
        text = word.quoted or word.raw
        pieces = re.split(r",(?=[A-Z][A-Z0-9_]*=)", text)
        for piece in pieces:
            if _ASSIGNED.fullmatch(piece):
                self.assign(Word(piece, word.line), "export")
            else:
                self.exported.add(piece)

    def inside(self, word: Word, depth: int) -> None:
        """A quoted word may be a script of its own (bash -c '…') or the JSON of a runtime environment."""
        if word.raw.startswith("-"):  # --wrap="…", --runtime-env-json='…'
            word = Word(word.raw.partition("=")[2], word.line)
        text = word.quoted
        if text is None or ("=" not in text and "env_vars" not in text):
            return
        if "env_vars" in text:
            for match in re.finditer(_JSON_PAIR, plain(word.raw)):
                self.set(match[1], match[2], word.line, "export")
        elif depth < DEPTH_LIMIT and ("\n" in text or " " in text):
            inner = text.replace('\\"', '"').replace("\\$", "$") if word.raw[0] == '"' else text
            self.walk(inner, word.line, depth + 1)

    def here_document(self, command: Command, words: list[Word], depth: int) -> None:
        program = plain(words[0].raw).rsplit("/", 1)[-1] if words else ""
        if program.startswith("python"):
            from whichrank.source import program as python

            found = python.read(command.heredoc, self.out.label, command.heredoc_line)
            self.out.assignments += found.assignments
            self.out.late += found.late
        elif _is_conf(command.target):
            self.conf_body(command)
        elif _is_env_file(command.target):
            self.each_line(command, lambda name, value, line: self.set(name, value, line, "export"))
        elif depth < DEPTH_LIMIT:
            self.walk(command.heredoc, command.heredoc_line, depth + 1)

    def conf_body(self, command: Command) -> None:
        self.each_line(command, lambda name, value, line: self.set(name, value, line, "conf"))
        self.out.baked.append(Baked(command.target, self.ref(command.heredoc_line)))

    @staticmethod
    def each_line(command: Command, use: Callable[[str, str | None, int], None]) -> None:
        for offset, line in enumerate(command.heredoc.split("\n")):
            if match := _ASSIGNED.fullmatch(line.strip()):
                use(match[1], None if "$" in match[3] else match[3], command.heredoc_line + offset)

    def batch_option(self, comment: Comment) -> None:
        if comment.text.startswith(("#SBATCH", "#PBS", "#$")) and (match := re.match(_BATCH, comment.text)):
            self.slurm_export(match[1].strip("\"'"), comment.line, "sbatch")

    def slurm_export(self, text: str, line: int, program: str) -> None:
        """`ALL,A=1,B=2`: commas separate variables, whatever the value of one was meant to be."""
        items = re.findall(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+", text)
        previous = ""
        for item in items:
            if match := _ASSIGNED.fullmatch(item):
                previous = match[1]
                self.set(previous, literal(match[3]), line, "export")
            elif previous and item != item.upper() and _takes_list(previous):
                why = f"--export splits at commas: '{item}' is taken for a variable of its own"
                fix = f"export {previous}=… before the command and let --export=ALL carry it"
                self.out.lost.append(Lost(previous, self.ref(line), why, fix))
        names = {item.partition("=")[0] for item in items}
        if program == "srun" and items and not names & {"ALL", "NONE", "NIL"} and any(map(in_family, names)):
            why = "--export without ALL hides all other variables of the script from the ranks, except SLURM_*"
            lost = Lost(next(filter(in_family, names)), self.ref(line), why, "Write --export=ALL,NAME=VALUE.", "info")
            self.out.lost.append(lost)


def _takes_list(name: str) -> bool:
    variable = catalogue().get(name)
    return variable is not None and (variable.kind == "list" or name.endswith("IFNAME"))


def _is_conf(path: str) -> bool:
    return path.rsplit("/", 1)[-1] in {"nccl.conf", ".nccl.conf"}


def _is_env_file(path: str) -> bool:
    return path.endswith((".env", "deepspeed_env"))
