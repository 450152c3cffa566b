"""Conditions, cases and loops of a script: each way that a run may take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import must_match
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source import rank_numbers
from whichrank.source.alternatives import in_scripts as choices
from whichrank.source.places import own_values
from whichrank.source.shell import documents, fitting
from whichrank.source.shell.conditions import truth
from whichrank.source.shell.state import Environment, Variable
from whichrank.source.shell.syntax import Case, If, Loop, Step, counted_up
from whichrank.source.shell.words import Value, expand, fields

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter

LOOP_LIMIT = 64
_BY_RANK = re.compile(
    r"\$\{?(?:\w+_)?(?:RANK|node_?rank|NODE_?(?:ID|INDEX)|PROCID|LOCALID|COMPLETION_INDEX|WORKER_INDEX)\b"
)


def condition(shell: Interpreter, node: If, env: Environment, *, sure: bool) -> None:
    ways: list[Environment] = []
    ends = [len(shell.out.launches)]
    usual = choices.of_branches(node, shell.lookup(env))
    for at, (test, body) in enumerate(node.branches):
        shell.walk(test, env, sure=sure)
        holds = truth(test, shell.lookup(env))
        if holds is False:
            continue
        if holds and not ways:
            shell.walk(body, env, sure=sure)
            return
        way = env.copy()
        with choices.taking(shell, choices.place(shell, body), usual[at]):
            shell.walk(body, way, sure=sure and bool(usual[at]))
        ways.append(way)
        ends.append(len(shell.out.launches))
        if holds:
            break
    else:
        way = env.copy() if ways else env
        with choices.taking(shell, choices.place(shell, node.otherwise), usual[-1] if ways else True):
            shell.walk(node.otherwise, way, sure=sure and (not ways or bool(usual[-1])))
        if not ways:
            return
        ways.append(way)
        ends.append(len(shell.out.launches))
    tests = [word for test, _ in node.branches for word in _words_of(test)]
    if _BY_RANK.search(" ".join(tests)):
        _ranks_part(shell, ways, ends)
    elif _by_host(shell, tests) and not any(re.search(r"[*?]|=~", w) or rank_numbers.ALONE.search(w) for w in tests):
        _differ(shell, ways, _BY_HOST)
    env.merge(ways)


def _words_of(steps: Sequence[Step]) -> list[str]:
    """The words of commands and loops, as they are written; a loop without a list has none."""
    return [word.raw for step in steps for word in getattr(step.node, "words", None) or ()]


def _ranks_part(shell: Interpreter, ways: list[Environment], ends: list[int]) -> None:
    """Ranks that take different branches and come out with different values of what all must share."""
    started = [shell.out.launches[start:end] for start, end in pairwise(ends)]
    fitting.one_port(shell, started)
    if any(started) and not all(started):
        return  # the first host starts all ranks, with what it has; the others wait
    _differ(shell, ways, "the branch depends on the rank, so ranks get different values of what all of them must share")


_BY_HOST = "the branch depends on the host's name, so hosts get different values of what all ranks must share"


def _by_host(shell: Interpreter, words: list[str]) -> bool:
    """A condition on the name of the host that runs the script."""
    return any(
        own_values.is_own_name(word) or any(name in shell.own_names for name in re.findall(r"\$\{?(\w+)", word))
        for word in words
    )


def _differ(shell: Interpreter, ways: list[Environment], why: str) -> None:
    """What must be equal on all ranks and is not after these ways; the rarest value is named."""
    for name in sorted({name for way in ways for name in way.variables if must_match(name)}):
        if why is _BY_HOST and name.endswith("_FILE"):
            continue  # hosts may keep the same thing in different places
        found = [way.variables.get(name) for way in ways if not way.ended]
        texts = Counter(variable.value.text if variable is not None else "" for variable in found)
        made = [made for variable in found if variable is not None for made in variable.made]
        if len(texts) < 2 or not made or any(UNKNOWN in text for text in texts):
            continue
        rare = min(texts[each.value.text] for each in made)
        odd = [each for each in made if texts[each.value.text] == rare][-1]
        others = tuple(shell.ref(each.line) for each in made if each is not odd)[:4]
        fix = "Set it once for all ranks, before the condition."
        shell.clash(Clash(name, shell.ref(odd.line), why, fix, others))


def case(shell: Interpreter, node: Case, env: Environment, *, sure: bool) -> None:
    subject = expand(node.subject.raw, shell.lookup(env))
    ways = []
    by_host: list[tuple[str, Environment]] = []
    ends = [len(shell.out.launches)]
    usual = choices.of_arms(shell, node, shell.lookup(env))
    for at, (patterns, body) in enumerate(node.arms):
        if subject.fixed and UNKNOWN not in subject.text:
            if any(fnmatchcase(subject.text, expand(p, shell.lookup(env)).text) for p in patterns):
                shell.walk(body, env, sure=sure)
                return
            continue
        way = env.copy()
        with choices.taking(shell, choices.place(shell, body), usual[at]):
            shell.walk(body, way, sure=sure and bool(usual[at]))
        ways.append(way)
        first = patterns[0] if patterns else ""
        stem = _NAME.match(first) if not rank_numbers.ALONE.search(first) else None
        by_host += [(stem[0], way)] if stem else []
        ends.append(len(shell.out.launches))
    if ways:
        if _by_host(shell, [node.subject.raw]):
            _hosts_part(shell, by_host, env)
        if _BY_RANK.search(node.subject.raw):
            _ranks_part(shell, ways, ends)
        every = any("*" in patterns for patterns, _ in node.arms)
        env.merge(ways if every else [*ways, env.copy()])


_NAME = re.compile(r"[A-Za-z]+")


def _hosts_part(shell: Interpreter, arms: list[tuple[str, Environment]], before: Environment) -> None:
    """Arms for hosts of one cluster, whose names begin alike; an arm alone differs from all hosts without one."""
    for stem in sorted({stem for stem, _ in arms}):
        ways = [way for each, way in arms if each == stem]
        if len(arms) == 1:
            ways.append(before)
        _differ(shell, ways, _BY_HOST)


def loop(shell: Interpreter, node: Loop, env: Environment, *, sure: bool) -> None:
    with shell.rounds.loop(id(node), node.name, *_read_in(node)):
        _loop(shell, node, env, sure=sure)


def _loop(shell: Interpreter, node: Loop, env: Environment, *, sure: bool) -> None:
    if node.kind in {"while", "until"}:
        piped, shell.piped = shell.piped, ""
        shell.walk(node.condition, env, sure=sure)
        if truth(node.condition, shell.lookup(env)) is (node.kind == "until"):
            return
        rows = documents.read_rows(node, piped)
        sure = sure and not piped  # a function that prints may have printed only some of it
        for values in rows[:LOOP_LIMIT]:
            for name, text, line in values:
                env.variables[name] = Variable(Value(text, line=line), False)
            shell.walk(node.body, env, sure=sure)
        if not rows:
            names = _read_in(node)
            shell.unknown_rounds |= names
            _forget_counters(node.body, env)
            _rounds(shell, node.body, env, sure=False)
            shell.unknown_rounds -= names
        return
    items = [f for word in node.words or [] for f in fields(word, shell.lookup(env))]
    if node.words is None or any(word.raw.strip('"') in {"$@", "$*", "${@}"} for word in node.words):
        shell.arguments.add(node.name)
    if not all(item.known for item in items) or not items:
        shell.unknown_rounds.add(node.name)
        _forget_counters(node.body, env)
    for item in items[:LOOP_LIMIT]:
        env.variables[node.name] = Variable(Value(item.text, line=item.line), False)
        shell.walk(node.body, env, sure=sure)
    if not items:
        env.variables[node.name] = Variable(Value(UNKNOWN, fixed=False), False)
        _rounds(shell, node.body, env, sure=sure)
    shell.unknown_rounds.discard(node.name)


def _read_in(node: Loop) -> set[str]:
    """Variables that the condition of a loop reads: `while read -r host`."""
    words = [word.raw for step in node.condition for word in getattr(step.node, "words", None) or ()]
    behind = words[words.index("read") + 1 :] if "read" in words else []
    return {word for word in behind if re.fullmatch(r"[A-Za-z_]\w*", word)}


def _forget_counters(body: list[Step], env: Environment) -> None:
    """What a loop over hosts that only a run would tell counts up is another number in each round."""
    for name in counted_up(body):
        if name in env.variables:
            env.variables[name] = env.variables[name]._replace(value=Value(UNKNOWN, fixed=False))


def _rounds(shell: Interpreter, body: list[Step], env: Environment, *, sure: bool) -> None:
    """The first round of a loop, and the second where it starts a training: that has what the first one set."""
    before = len(shell.launches)
    shell.walk(body, env, sure=sure)
    if len(shell.launches) > before:
        shell.walk(body, env, sure=False)
