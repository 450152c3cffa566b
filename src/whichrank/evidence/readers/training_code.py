"""Short pieces of training code beside the logs: where ranks part ways around a collective.

Nothing is parsed as Python: reports hold fragments that no parser takes. Indentation and the words of the lines are
enough to see that a collective stands under a condition on the rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.clue import CodeClue

NAME = "training_code"

_LARGEST = 1 << 18
_LONGEST = 400
_MOST = 64
_BETWEEN_PROGRAMS = 2
"""Lines that are not code: more of them, and another program begins."""
_SUFFIXES = (".py", ".py.txt", ".snippet")

_BRANCH = re.compile(r"(?P<word>if|elif|else)\b(?P<condition>[^#\n]{0,200}):")
_POINTS = re.compile(r"^(?:\s{0,40}(?:HERE|here|HANGS?|hangs?|stuck)?\s{0,4}[-=]{1,8}>)(?=\s)")
"""`HERE --->`: how people point at a line."""
_RANK = (
    r"(?:[\w.]{0,40}\b)?(?:(?:global_rank|local_rank|world_rank|rank|RANK|LOCAL_RANK|process_index)\b"
    r"|get_rank\(\w{0,20}\))"
)
_FIRST = re.compile(
    rf"{_RANK}\s{{0,4}}(?:==|<=|<)\s{{0,4}}(?:0|1)\b|is_main_process|is_local_main_process|is_world_process_zero"
    rf"|is_global_zero|is_rank_?0|is_rank_zero|is_master|is_chief|not {_RANK}|{_RANK}\s{{0,4}}in\s{{0,4}}[\[(]"
)
_OTHERS = re.compile(
    rf"{_RANK}\s{{0,4}}(?:!=|>|>=)\s{{0,4}}[01]\b|not (?:[\w.]{{0,40}})?is_main_process|not (?:[\w.]{{0,40}})?is_master"
)
_ANY_RANK = re.compile(rf"{_RANK}\s{{0,4}}(?:==|!=|<|>|%)")
# What differs from rank to rank although the code does not name the rank: values of tensors, lengths, missing inputs.
_OWN_DATA = re.compile(
    r"\.item\(\)|\bis(?:nan|inf|finite)\(|\.(?:any|all|numel|nelement)\(\)|\blen\(|\bis (?:not )?None\b"
    r"|\.(?:shape|size)\b|\b(?:loss|grad_norm|batch|images?|pixel_values|inputs?|labels|tokens|samples?)\b\s{0,2}(?:[<>!=]|is\b)"
)
_SHARED = re.compile(
    r"world_size|is_initialized|is_available|is_distributed|\b(?:args|cfg|config|opt|hparams)\b|\b(?:step|epoch|iteration)\b"
    r"|training\b|\bgroup\b|debug|verbose"
)
_COLLECTIVE = re.compile(
    r"\b(?:(?:dist|distributed|accelerator|fabric|comm|c10d)\.|\.)?"
    r"(?P<name>all_reduce|all_gather\w{0,20}|reduce_scatter\w{0,20}|broadcast\w{0,20}|all_to_all\w{0,20}|barrier|"
    r"monitored_barrier|wait_for_everyone|save_state|save_checkpoint|full_tensor|gather_for_metrics|get_state_dict|"
    r"consolidate_state_dict|(?<=metric\.)compute|(?<=metrics\.)compute|"
    r"log(?:_dict)?(?=\([^\n]{0,200}sync_dist ?= ?True)|"
    r"(?<=dist\.)(?:reduce|gather|scatter)|(?<=distributed\.)(?:reduce|gather|scatter)|(?<=accelerator\.)(?:reduce|gather))"
    r"\s{0,2}\("
)
_OF_ARRAYS = re.compile(
    r"\b(?P<name>psum|pmean|pmax|pmin|ppermute|pmap|process_allgather|sync_global_devices|broadcast_one_to_all)\s{0,2}\("
)
"""JAX's: every process has to call them."""
_PROCESS = re.compile(r"\b(?:process_id|rank|task_index|host_id) ?= ?(?P<number>\d{1,5})\b")
_LEAVES = re.compile(r"return\b|continue\b")
_DEFINES = re.compile(r"(?:async )?def |class |@")
_OPENED_IF = re.compile(r"(?:if|elif)\b[^#\n]{0,80}\($")
_SHARDED = re.compile(
    r"FSDP|fully_shard|FULL_STATE_DICT|StateDictType|FullyShardedDataParallel"
    r"|(?i:\bzero[-_ ]?(?:stage[-_ ]?)?3\b|\bstage[\"']?[-_ :=]{0,3}3\b)"
)
_GATHERS = re.compile(
    r"\.(?P<state>(?:optim_)?state_dict)\s{0,2}\(|(?<![\w.])(?:self\.)?(?P<forward>model|model_engine|engine)\s{0,2}\("
)
"""What gathers the parameters of a sharded model from all ranks: its state, its forward pass."""
_P2P = re.compile(r"\b(?P<name>isend|irecv|send|recv)\s{0,2}\(")
_P2P_OWNER = re.compile(r"(?:dist|distributed)\.(?:i?send|i?recv)\s{0,2}\(|\b(?:isend|irecv)\s{0,2}\(")
_WORK = re.compile(
    r"\.map\(|load_dataset\(|tokeni[sz]e|preprocess|download|from_pretrained\(|build_\w{0,30}(?:index|dataset|cache)|"
    r"prepare_data|snapshot_download|load_from_disk|\.filter\("
)


def sniff(head: bytes, name: str) -> bool:
    """Whether this is a piece of Python with something of ranks or collectives in it."""
    if not name.lower().endswith(_SUFFIXES) or not is_text(head):
        return False
    text = head.decode("utf-8", "replace")
    return bool(_ANY_RANK.search(text) or _FIRST.search(text) or "dist." in text or "distributed" in text)


def read(item: Item) -> Reading:
    """The places where ranks part ways around a collective."""
    if item.size > _LARGEST:
        return Reading([], "ignored", "code of this size is not read as evidence; use --source")
    clues = clues_of(item.label, list(enumerate(_lines(item), 1)))
    return Reading(list(clues), "complete", "" if clues else "no collective under a condition on the rank")


def clues_of(label: str, numbered: Iterable[tuple[int, str]], around: str = "") -> list[CodeClue]:
    """The same for lines of code with their numbers, and the text that they stand in."""
    plain = ((number, _POINTS.sub(lambda mark: " " * len(mark[0]), text[:_LONGEST])) for number, text in numbered)
    lines = _joined([_Line(number, text) for number, text in plain if text.strip()])
    sharded = bool(_SHARDED.search(around)) or any(_SHARDED.search(line.text) for line in lines)
    return _Reader(label, [line for line in lines if not line.text.startswith("#")], sharded=sharded).clues()[:_MOST]


def apart(label: str, numbered: Iterable[tuple[int, str]]) -> list[CodeClue]:
    """Programs of several processes, one after the other: what only the one of process 0 calls."""
    programs: dict[int, list[tuple[str, _Line]]] = {}
    process: int | None = None
    before = 0
    for number, text in numbered:
        process = process if number - before <= _BETWEEN_PROGRAMS else None
        before = number
        line = _Line(number, text[:_LONGEST])
        if started := _PROCESS.search(line.text):
            process = int(started["number"])
            programs.setdefault(process, [])
        if process is not None:
            calls = [*_COLLECTIVE.finditer(line.text), *_OF_ARRAYS.finditer(line.text)]
            programs[process] += [(call["name"], line) for call in calls]
    first = programs.pop(0, [])
    alone = [call for call in first if not any(call[0] == name for calls in programs.values() for name, _ in calls)]
    if not programs or not alone:
        return []
    line = alone[0][1]
    ref = Ref(label, f"line {line.number}", line.text[:400])
    return [CodeClue("guarded", ref, label, line.number, "the process is number 0", tuple(name for name, _ in alone))]


def _joined(lines: list[_Line]) -> list[_Line]:
    """Conditions in parentheses over several lines as one."""
    found: list[_Line] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        end = next((i for i in range(at + 1, min(at + 12, len(lines))) if lines[i].text == "):"), at)
        if _OPENED_IF.match(line.text) and end > at:
            line.text = " ".join(part.text for part in lines[at : end + 1])
            at = end
        found.append(line)
        at += 1
    return found


def _lines(item: Item) -> list[str]:
    return [line[:_LONGEST] for line in item.read().decode("utf-8", "replace").splitlines()]


class _Line:
    def __init__(self, number: int, raw: str) -> None:
        self.number = number
        expanded = raw.expandtabs(4)
        self.text = expanded.strip()
        self.indent = len(expanded) - len(expanded.lstrip())


class _Branch(Struct):
    """One arm of a condition on the rank."""

    line: _Line
    condition: str
    first: bool
    others: bool
    calls: list[tuple[str, _Line, bool]] = field(default_factory=list)
    """Name, line, and whether it is point-to-point."""
    end: int = 0


class _Reader:
    def __init__(self, label: str, lines: list[_Line], *, sharded: bool) -> None:
        self._sharded = sharded
        """The model is sharded: to take its state is a collective."""
        self._label = label
        self._lines = lines

    def clues(self) -> list[CodeClue]:
        chains = self._chains()
        found = [clue for chain in chains for clue in self._crossed(chain)]
        around = self._between(chains)
        found += around
        used = {clue.line for clue in around}
        found = found or [c for chain in chains for c in self._guarded(chain) if c.line not in used]
        return found or self._past_a_return(chains) or self._by_data()

    def _chains(self) -> list[list[_Branch]]:
        """Each if-elif-else whose conditions speak of the rank."""
        chains: list[list[_Branch]] = []
        open_chains: dict[int, list[_Branch]] = {}
        for at, line in enumerate(self._lines):
            for indent in [i for i in open_chains if i > line.indent]:
                del open_chains[indent]
            found = _BRANCH.match(line.text)
            if found is None:
                open_chains.pop(line.indent, None)
                continue
            condition = found["condition"].strip()
            if found["word"] == "if":
                open_chains.pop(line.indent, None)
            if not (_FIRST.search(condition) or _OTHERS.search(condition) or _ANY_RANK.search(condition)) and not (
                found["word"] != "if" and line.indent in open_chains
            ):
                continue
            others = bool(_OTHERS.search(condition))
            branch = _Branch(line, condition, bool(_FIRST.search(condition)) and not others, others)
            self._fill(branch, at, found.end())
            if found["word"] == "if" or line.indent not in open_chains:
                open_chains[line.indent] = [branch]
                chains.append(open_chains[line.indent])
            else:
                open_chains[line.indent].append(branch)
        return chains

    def _fill(self, branch: _Branch, at: int, behind: int) -> None:
        """The operations of one arm: on its own line, or in the block below."""
        body = [(branch.line, branch.line.text[behind:])]
        for line in self._lines[at + 1 :]:
            if line.indent <= branch.line.indent:
                break
            body.append((line, line.text))
            branch.end = line.number
        for line, text in body:
            calls = [(m.start(), m["name"], False) for m in _COLLECTIVE.finditer(text)]
            if self._sharded:
                calls += [(m.start(), m["state"] or m["forward"], False) for m in _GATHERS.finditer(text)]
            if _P2P_OWNER.search(text):
                calls += [(m.start(), m["name"], True) for m in _P2P.finditer(text)]
            branch.calls += [(name, line, p2p) for _, name, p2p in sorted(calls)]

    def _crossed(self, chain: list[_Branch]) -> list[CodeClue]:
        """Two arms that mix collectives and point-to-point operations in different orders, or begin alike."""
        arms = [branch for branch in chain if len(branch.calls) > 1]
        for number, one in enumerate(arms):
            for other in arms[number + 1 :]:
                mine, theirs = _kinds(one), _kinds(other)
                mixed = "collective" in mine and "collective" in theirs and len(set(mine)) > 1 and len(set(theirs)) > 1
                alike = _waits_first(one) != "" and _waits_first(one) == _waits_first(other)
                if (mixed and _order(mine) != _order(theirs)) or alike:
                    return [self._clue("crossed", one, one.calls[0][1], _names(one), _names(other))]
        return []

    def _by_data(self) -> list[CodeClue]:
        """A collective under a condition on this rank's own data, without the same one in the other arm."""
        found = []
        for at, line in enumerate(self._lines):
            branch = _BRANCH.match(line.text)
            if branch is None or branch["word"] == "else" or not _OWN_DATA.search(branch["condition"]):
                continue
            if _SHARED.search(branch["condition"]) or _ANY_RANK.search(branch["condition"]):
                continue
            arm = _Branch(line, branch["condition"].strip(), first=False, others=False)
            self._fill(arm, at, branch.end())
            alone = [(name, where) for name, where, p2p in arm.calls if not p2p and not self._repeated(at, line, name)]
            if alone:
                found.append(self._clue("by_data", arm, alone[0][1], tuple(name for name, _ in alone)))
        return found

    def _repeated(self, at: int, line: _Line, name: str) -> bool:
        """Whether the arm behind this one has the same call."""
        behind = [other for other in self._lines[at + 1 :] if other.indent <= line.indent][:1]
        if not behind or not behind[0].text.startswith(("else", "elif")):
            return False
        arm = _Branch(behind[0], "", first=False, others=False)
        self._fill(arm, self._lines.index(behind[0]), len(behind[0].text))
        return any(name == other for other, _, _ in arm.calls)

    def _between(self, chains: list[list[_Branch]]) -> list[CodeClue]:
        """The others wait in a barrier, one rank works, and then comes to its own barrier."""
        arms = [chain[0] for chain in chains if len(chain) == 1]
        waiting = [b for b in arms if b.others and any("barrier" in name or "wait" in name for name, _, _ in b.calls)]
        late = [b for b in arms if b.first and any("barrier" in name or "wait" in name for name, _, _ in b.calls)]
        found = []
        for one in waiting:
            for other in late:
                if other.line.number > one.line.number and any(
                    one.end < line.number < other.line.number and _WORK.search(line.text) for line in self._lines
                ):
                    found.append(self._clue("between_barriers", one, one.calls[0][1], _names(one), _names(other)))
                    found.append(self._clue("between_barriers", other, other.calls[0][1], _names(other)))
        return found

    def _guarded(self, chain: list[_Branch]) -> list[CodeClue]:
        """A collective in the arm of the first rank that no other arm has."""
        found = []
        for branch in chain:
            elsewhere = {name for other in chain if other is not branch for name, _, _ in other.calls}
            alone = [(name, line) for name, line, p2p in branch.calls if not p2p and name not in elsewhere]
            if branch.first and alone:
                found.append(self._clue("guarded", branch, alone[0][1], tuple(name for name, _ in alone)))
        return found

    def _past_a_return(self, chains: list[list[_Branch]]) -> list[CodeClue]:
        """A collective behind a branch in which all but the first rank leave the function."""
        for branch in (chain[0] for chain in chains if len(chain) == 1 and chain[0].others and not chain[0].calls):
            at = self._lines.index(branch.line)
            body = [line for line in self._lines[at + 1 :] if line.number <= branch.end]
            if not body or not _LEAVES.match(body[-1].text):
                continue
            rest = _Branch(branch.line, f"not ({branch.condition.strip('() ')})", first=True, others=False)
            for line in self._lines[at + 1 + len(body) :]:
                if line.indent < branch.line.indent or _DEFINES.match(line.text):
                    break
                rest.calls += [(m["name"], line, False) for m in _COLLECTIVE.finditer(line.text)]
            if rest.calls:
                return [self._clue("guarded", rest, rest.calls[0][1], _names(rest))]
        return []

    def _clue(
        self, kind: str, branch: _Branch, line: _Line, calls: tuple[str, ...], other: tuple[str, ...] = ()
    ) -> CodeClue:
        quote = f"{branch.line.text} … {line.text}" if line is not branch.line else line.text
        ref = Ref(self._label, f"line {line.number}", quote[:400])
        return CodeClue(kind, ref, self._label, line.number, branch.condition, calls, other)  # type: ignore[arg-type]


def _names(branch: _Branch) -> tuple[str, ...]:
    return tuple(name for name, _, _ in branch.calls)


def _kinds(branch: _Branch) -> list[str]:
    return ["p2p" if p2p else "collective" for _, _, p2p in branch.calls]


def _order(kinds: list[str]) -> int:
    """Which of the two kinds comes first."""
    return kinds.index("collective") - kinds.index("p2p") > 0


def _waits_first(branch: _Branch) -> str:
    """Which blocking half stands first in an arm that has both; nothing where it is not so."""
    names = [name for name in _names(branch) if name in ("recv", "send")]
    return names[0] if len(set(names)) == 2 else ""
