"""A project's files in, the case for the rules on code out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.records.code import Disagreement, Habit, Parting, ProgramCase, Reason
from whichrank.source.code.analysis import Analysis
from whichrank.source.code.calling.past_wrapper import past_wrappers
from whichrank.source.code.habits import called_names, habits
from whichrank.source.code.index import Module, Project, resolve
from whichrank.source.code.late_settings import in_wrong_order
from whichrank.source.code.paths import groups
from whichrank.source.code.paths.differences import operation, place
from whichrank.source.code.paths.pairings import pairings
from whichrank.source.code.paths.partings import Judge
from whichrank.source.code.process_groups import never_destroyed
from whichrank.source.code.replicas import unseeded
from whichrank.source.code.summaries import Noted
from whichrank.source.code.traits import traits_of
from whichrank.source.code.values import Origin
from whichrank.source.nodes import dotted, last_name

_DECISIONS = frozenset({"file", "host", "time", "random", "memory", "queue"})
_TYPE_DECIDED_BY = frozenset({"rank", "data", "part", "host", "memory", "random"})
_DYNAMIC = {"exec": "exec()", "eval": "eval()", "__import__": "__import__()", "import_module": "import_module()"}


def read_project(modules: Iterable[Module]) -> tuple[ProgramCase, Analysis]:
    """Everything that the rules judge."""
    project = Project()
    for module in modules:
        project.add(module)
    analysis = Analysis(project, traits_of(project))
    analysis.run()
    judge = Judge(analysis)
    for function in list(analysis.summaries):
        try:
            judge.judge(function)
        except RecursionError:
            analysis.too_deep.append(function)
    judge.judge_later()
    judge.judge_groups()
    partings = list(_at_calls(list(_once(judge.partings))))
    case = ProgramCase(partings, judge.disagreements, operations=analysis.notes.operations)
    case.disagreements += _disagreements(analysis)
    called = frozenset(name for module in project.modules.values() for name in called_names(module))
    case.habits += habits(project, called)
    case.habits += _steps_left_out(judge) if "average_parameters" not in called else []
    case.habits += in_wrong_order(project, called)
    case.habits += never_destroyed(analysis, called)
    case.habits += unseeded(project, called, analysis.seeded)
    case.habits += past_wrappers(analysis, called)
    case.habits += _schedules(analysis)
    blocked, unlike = pairings(analysis)  # last: it reads functions again, for single calls of them
    case.pairings += blocked
    case.disagreements += unlike
    return case, analysis


def _steps_left_out(judge: Judge) -> Iterator[Habit]:
    """Steps of the optimizer that some ranks leave out, where no collective is left out for the same reason."""
    told = {ref for parting in judge.partings for ref in (parting.at, *(reason.ref for reason in parting.reasons))}
    return (habit for habit in judge.habits if told.isdisjoint(habit.others))


def _once(partings: list[Parting]) -> Iterator[Parting]:
    """One decision, told once: not again for the loops that follow from it, `range(start, …)` after a resume."""
    decided = {parting.reasons for parting in partings if parting.shape not in {"loop", "while"}}
    for parting in partings:
        follows = parting.shape == "loop" and len(parting.reasons) == 1 and parting.reasons[0].kind in _DECISIONS
        if not (follows and parting.reasons in decided):
            yield parting


def _at_calls(partings: list[Parting]) -> Iterator[Parting]:
    """A helper that several decisions lead to: each that the rank surely makes is told at its own call of it."""
    calls: dict[Ref, set[Ref]] = {}
    for parting in partings:
        calls.setdefault(parting.concerned.ref, set()).add(parting.via[0] if parting.via else parting.concerned.ref)
    for parting in partings:
        sure = parting.doers is not None and bool(parting.reasons) and parting.reasons[0].kind == "rank"
        if sure and parting.via and len(calls[parting.concerned.ref]) > 1:
            first, *rest = parting.via
            way = (*rest, parting.concerned.ref)
            yield replace(parting, concerned=replace(parting.concerned, ref=first), via=way)
        else:
            yield parting


def _disagreements(analysis: Analysis) -> Iterator[Disagreement]:
    for op, taint in analysis.notes.half_splits:
        if reasons := [o for o in analysis.resolve(taint) if o.kind in {"rank", "data"}]:
            said = "the sizes that this rank sends are not those that the others expect"
            yield Disagreement("size", operation(op), _reasons(analysis, reasons), said)
    for op, taint, said in analysis.notes.other_groups:
        yield Disagreement("group", operation(op), _reasons(analysis, analysis.resolve(taint)), said)
    for op, origin, said in analysis.notes.foreign_roots:
        yield Disagreement("root", operation(op), _reasons(analysis, [origin]), said)
    for op, origin, said in analysis.notes.types_apart:
        yield Disagreement("dtype", operation(op), _reasons(analysis, [origin]), said)
    for noted in analysis.notes.noted:
        yield from _root(analysis, noted)
        yield from _reduction(analysis, noted)
        yield from _payload(analysis, noted)


def _root(analysis: Analysis, noted: Noted) -> Iterator[Disagreement]:
    """A root that differs within the default group: by rank, by chance, or by what this rank alone has."""
    reasons = [o for o in analysis.resolve(noted.root.taint) if o.kind in {"rank", "random", "data", "host", "time"}]
    op = noted.op
    if not reasons or op.kind != "collective" or op.group:
        return
    if noted.root.ranks is None or len(set(map(str, noted.root.ranks))) > 1:
        said = f"the root is {op.root}, another one on every rank"
        yield Disagreement("root", operation(op), _reasons(analysis, reasons), said)


def _reduction(analysis: Analysis, noted: Noted) -> Iterator[Disagreement]:
    reasons = analysis.resolve(noted.reduction.taint)
    if reasons and noted.op.kind == "collective":
        said = f"the reduction is {noted.op.reduction}, which differs between ranks"
        yield Disagreement("op", operation(noted.op), _reasons(analysis, reasons), said)


def _payload(analysis: Analysis, noted: Noted) -> Iterator[Disagreement]:
    payload, op = noted.payload, noted.op
    reasons = [o for o in analysis.resolve(payload.cast) if o.kind in _TYPE_DECIDED_BY]
    apart = groups.parts(reasons, op.group) if op.group else bool(reasons)
    if apart and op.kind == "collective":
        yield Disagreement("dtype", operation(op), _reasons(analysis, reasons), "its type differs between ranks")
    reasons = [o for o in analysis.resolve(payload.length) if o.kind in {"rank", "data", "random"}]
    if reasons and op.kind == "collective" and not op.group:
        yield Disagreement("size", operation(op), _reasons(analysis, reasons), "its size differs between ranks")


def _reasons(analysis: Analysis, origins: list[Origin]) -> tuple[Reason, ...]:
    by_label = {module.label: module for module in analysis.project.modules.values()}
    return tuple(Reason(o.kind, o.what, place(by_label[o.file], o.line)) for o in origins[:4] if o.file in by_label)


def _schedules(analysis: Analysis) -> Iterator[Habit]:
    """Schedules of the learning rate whose length differs between ranks."""
    for late in analysis.notes.schedules:
        reasons = [o for o in analysis.resolve(late.taint) if o.kind in {"rank", "data"}]
        if reasons:
            said = f"the schedule depends on {reasons[0].what}: replicas get different learning rates"
            yield Habit(
                "local schedule", place(late.module, late.line), said, tuple(r.ref for r in _reasons(analysis, reasons))
            )


def blind_spots(module: Module) -> Iterator[tuple[int, str]]:
    """What reading can't follow."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name in _DYNAMIC and (isinstance(node.func, ast.Name) or name == "import_module"):
                yield node.lineno, _DYNAMIC[name]
            elif name == "setattr" and len(node.args) == 3 and dotted(node.args[0]):
                changed = resolve(module, dotted(node.args[0]))
                if changed.startswith("torch") or changed in module.imports.values():
                    yield node.lineno, f"setattr() on {dotted(node.args[0])}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                text = dotted(target) if isinstance(target, ast.Attribute) else ""
                if (
                    text
                    and text.split(".")[0] in module.imports
                    and resolve(module, text).startswith("torch.distributed.")
                ):
                    yield node.lineno, f"{text} is replaced"
