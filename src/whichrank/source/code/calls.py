"""What a call does: an operation of the table, a source of difference, a function of the project, or nothing known."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts.collectives import Argument, Collective, collectives, rank_sources
from whichrank.source.code import binding, groups, libraries
from whichrank.source.code.builtin_calls import BUILTINS
from whichrank.source.code.events import Enter, Event, Fork, Op, Risk
from whichrank.source.code.expressions import (
    AGREED_TAG,
    ALIAS,
    CARRIED,
    asked_environment,
    environment,
    evaluate,
    looked_up,
    mixed,
    rank_value,
)
from whichrank.source.code.index import Class, Function, dotted, last_name, resolve
from whichrank.source.code.leaving import quit_by
from whichrank.source.code.loops import object_length
from whichrank.source.code.values import (
    UNKNOWN,
    WORLD,
    Origin,
    ParamOrigin,
    Value,
    constant,
    functions_of,
    join,
    objects_of,
    per_rank,
    union,
)

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Summary
    from whichrank.source.code.frame import Frame

# Methods that every object has, or that say nothing about whose they are.
COMMON = frozenset({
    "get", "items", "keys", "values", "append", "update", "pop", "add", "copy", "close", "open", "read", "write", "run",
    "start", "stop", "join", "format", "split", "forward", "step", "backward", "train", "eval", "to", "cuda", "cpu",
    "save", "load", "state_dict", "load_state_dict", "parameters", "zero_grad", "reset", "compute", "log", "info",
    "__init__", "__call__", "setup", "build", "apply", "put", "send", "recv", "wait", "extend", "clear", "sort", "size",
    "index", "count", "map", "filter", "reduce", "gather", "scatter", "set", "view", "item", "print", "debug",
    "warning",
})  # fmt: skip
# Python and torch say the same of any input: kinds and shapes of objects, not what this rank holds.
SAME_EVERYWHERE = frozenset({
    "isinstance", "hasattr", "callable", "type", "issubclass", "id", "device", "is_available", "is_initialized",
    "get_world_size", "device_count", "is_floating_point", "is_tensor", "dim", "ndimension", "getLogger", "get_logger",
    "get_backend", "is_nccl_available", "is_complex", "print", "super",
})  # fmt: skip
FILLS = frozenset({"append", "extend", "add", "insert", "update", "appendleft"})
RISKY = frozenset({
    "open", "load", "read", "loads", "next", "fetch", "download", "decode", "float", "int", "urlopen", "unlink",
    "remove", "rename", "makedirs", "mkdir", "read_text", "write_text", "save", "parse", "backward",
})  # fmt: skip

MOST_OVERRIDES = 4
MODEL_NAMES = frozenset(
    {"model", "net", "network", "policy", "ddp_model", "fsdp_model", "actor", "critic", "criterion"}
)
CALLERS = {"map": (0,), "filter": (0,), "starmap": (0,), "tree_map": (0,), "imap": (0,), "run_until_complete": (0,)}
"""Functions of libraries that call what they are given, and the place where they are given it."""
_ENVIRONMENT = re.compile(r"(?:^|[._])(?:vec_|train_|eval_)?envs?$")
"""What people call the world of an agent that learns by trying."""
QUALIFIED = frozenset({"functools.partial", "types.SimpleNamespace", "argparse.Namespace"})
_TRANSLATES = frozenset({"get_global_rank", "get_group_rank"})
"""The number in one group for a number in another: of any rank, not of this one."""
_RANKS = frozenset({"rank", "first", "last", "part"})
LOOKUPS = frozenset({"get", "pop", "setdefault"})
READS = frozenset({"open", "read_text", "read_bytes", "urlopen", "load", "loads", "read_csv", "imread", "load_image"})


class Call(NamedTuple):
    """A call with what is known of its parts."""

    node: ast.Call
    name: str
    full: str
    """Dotted, imports resolved; empty where it is a method of some value."""
    receiver: Value
    receiver_text: str
    args: list[Value]
    keywords: dict[str, Value]

    def argument(self, wanted: Argument | None) -> tuple[Value, ast.expr | None]:
        """One argument: its value and how it is written."""
        if wanted is None:
            return UNKNOWN, None
        for keyword in self.node.keywords:
            if keyword.arg in {wanted.keyword, f"group_{wanted.keyword}"}:
                return self.keywords.get(keyword.arg or "", UNKNOWN), keyword.value
        if wanted.place < len(self.args):
            return self.args[wanted.place], self.node.args[wanted.place]
        return UNKNOWN, None


def call(frame: Frame, node: ast.Call) -> Value:
    """Evaluate a call: its parts first, then what it does."""
    made = _parts(frame, node)
    several = _several(frame, made)
    if several is not None:
        return several
    special = libraries.special(frame, made)
    if special is not None:
        return special
    spec = _spec(frame, made)
    target = _target(frame, made) if spec is None or spec.on == "*" else None
    if spec is not None and target is None:
        return _operation(frame, made, spec)
    if isinstance(target, Function):
        return _entered(frame, made, target)
    if isinstance(target, Class):
        return _construct(frame, made, target)
    source = _source(frame, made)
    if source is not None:
        return source
    plain = isinstance(made.node.func, ast.Name) or made.full in QUALIFIED
    builtin = BUILTINS.get(made.name) if plain else None
    if builtin is not None:
        return builtin(frame, made)
    return _unknown(frame, made)


def _parts(frame: Frame, node: ast.Call) -> Call:
    func = node.func
    text = dotted(func)
    name = last_name(func)
    receiver, receiver_text = UNKNOWN, ""
    if isinstance(func, ast.Attribute):
        receiver_text = dotted(func.value)
        root = receiver_text.partition(".")[0]
        imported = root in frame.function.module.imports and frame.lookup(root) is None
        receiver = UNKNOWN if imported else evaluate(frame, func.value)
        full = resolve(frame.function.module, text) if text and root != "self" else ""
    else:
        full = resolve(frame.function.module, text) if text else ""
        if isinstance(func, ast.Name) and func.id in frame.function.module.imports:
            name = full.rpartition(".")[2]  # imported under another name
        elif not text:
            receiver = evaluate(frame, func)
    if alias := _alias(frame, func):
        full, name, receiver_text = alias, alias.rpartition(".")[2], ""
    args = [evaluate(frame, argument) for argument in node.args]
    keywords = {k.arg or "**": evaluate(frame, k.value) for k in node.keywords}
    return Call(node, name, full, receiver, receiver_text, args, keywords)


def _alias(frame: Frame, func: ast.expr) -> str:
    """The function of a library that a variable stands for."""
    if isinstance(func, ast.Name):
        known = frame.lookup(func.id)
    elif isinstance(func, ast.Attribute) and dotted(func.value) == "self" and frame.owner is not None:
        known = frame.paths.get(dotted(func)) or frame.analysis.attribute(frame.owner, func.attr)
    else:
        return ""
    marks = [tag for tag in known.tags if tag.startswith(ALIAS)] if known is not None and known.tags else []
    return marks[0][len(ALIAS) :] if len(marks) == 1 else ""


def _callee(frame: Frame, made: Call) -> Value | None:
    """The value that is called, where it is a variable, an attribute or the result of an expression."""
    func = made.node.func
    if isinstance(func, ast.Name):
        return frame.lookup(func.id)
    if isinstance(func, ast.Attribute):
        text = dotted(func)
        if text and text in frame.paths:
            return frame.paths[text]
        owner = made.receiver.thing if "itself" not in made.receiver.tags else None
        if isinstance(owner, Class) and frame.analysis.project.method(owner, func.attr) is None:
            return frame.analysis.attribute(owner, func.attr)
        return None
    return made.receiver


def _several(frame: Frame, made: Call) -> Value | None:
    """A call of something that may be one of several functions, or a partial, or one that was passed in."""
    if called := CALLERS.get(made.name):
        for thing in functions_of(made.args[place] for place in called if place < len(made.args)):
            if isinstance(thing, Function):
                _enter(frame, made._replace(args=[], keywords={}), thing)
        return None
    if made.receiver.kinds:
        found = [_method(frame, kind, made.name) for kind in made.receiver.kinds]
        methods = tuple(dict.fromkeys(method for method in found if method is not None))
        if len(methods) > 1 and made.receiver.taint:  # of one class on some ranks, of another on others
            return _dispatched(frame, made, made.receiver._replace(ranks=None), methods)
        if methods:
            return join([_enter(frame, made, method) for method in methods])
    callee = _callee(frame, made)
    if callee is None or not (callee.holds or "itself" in callee.tags):
        return None
    things = functions_of([callee])
    functions = tuple(thing for thing in things if isinstance(thing, Function))
    classes = [thing for thing in things if isinstance(thing, Class)]
    if not things:
        return None
    if classes:
        return join([_construct(frame, made, thing) for thing in classes]) if callee.holds else None
    if "partial" in callee.tags:
        given = dict(callee.fields or {})
        made = made._replace(args=[*(callee.items or ()), *made.args], keywords={**given, **made.keywords})
    if "dispatched" in callee.tags:
        return _dispatched(frame, made, callee, functions)
    param = _param(frame, made.node.func)
    if len(functions) == 1 and not param and "partial" not in callee.tags and isinstance(made.node.func, ast.Name):
        return None
    return join([_enter(frame, made, function, param) for function in functions])


def _param(frame: Frame, func: ast.expr) -> str:
    """The parameter, of this function or of the one around it, that is called."""
    name = last_name(func) if isinstance(func, ast.Name) else ""
    around: Function | None = frame.function
    while around is not None and name:
        if name in around.params:
            return name
        around = around.parent
    return ""


def _dispatched(frame: Frame, made: Call, callee: Value, functions: tuple[Function, ...]) -> Value:
    """Which function is called differs between ranks: one branch for each."""
    kept, frame.out = frame.out, []
    results, branches = [], []
    for function in functions:
        results.append(_enter(frame, made, function))
        truths = tuple(each is function for each in callee.ranks) if callee.ranks is not None else None
        branches.append((Value(callee.taint, ranks=truths), frame.out))
        frame.out = []
    frame.out = kept
    if "or nothing" in callee.tags:
        branches.append((Value(callee.taint), []))
    other: list[Event] = branches[-1][1]
    for test, events in reversed(branches[:-1]):
        other = [Fork(test, ast.unparse(made.node.func)[:120], made.node.lineno, events, other)]
    frame.out += other
    return join(results)


def _spec(frame: Frame, made: Call) -> Collective | None:
    """The row of the table that this call is, if it is one."""
    for spec in collectives().get(made.name, ()):
        if spec.needs and not _given(made, spec.needs):
            continue
        if spec.on == "*":
            if made.receiver_text or made.name == made.full:
                return spec
        elif spec.on.startswith("@"):
            if libraries.is_a(frame, made, spec.on[1:]):
                return spec
        elif _in_module(made, spec.on):
            return spec
    return None


def _in_module(made: Call, prefix: str) -> bool:
    if prefix == "deepspeed":
        return made.full == f"deepspeed.{made.name}"
    if made.full.startswith(prefix + "."):
        return True
    if prefix == "torch.distributed":
        head = made.full.rpartition(".")[0]
        return head.startswith("deepspeed.comm") or head in {"dist", "torch_dist", "deepspeed.comm.comm"}
    if prefix == "torch.distributed.checkpoint":
        return made.full.rpartition(".")[0] == "dcp"
    return (
        prefix == "torch.nn.parallel" and made.full.startswith("torch.nn.") and made.name == "DistributedDataParallel"
    )


def _given(made: Call, needs: str) -> bool:
    keyword, _, wanted = needs.partition("=")
    value = made.keywords.get(keyword)
    return value is not None and value.ranks is not None and str(value.ranks[0]) == wanted


def _operation(frame: Frame, made: Call, spec: Collective) -> Value:
    """A collective: noted as an event, and what it makes equal on all ranks."""
    group, group_node = made.argument(spec.group)
    root, root_node = made.argument(spec.root)
    op, op_node = made.argument(spec.op)
    whole = spec.group is not None and spec.group.keyword == "device_mesh" and not isinstance(group_node, ast.Subscript)
    text = "" if whole else groups.group_text(group, group_node)
    event = Op(spec.call, spec.kind, frame.function, made.node.lineno, text)
    event.members = group.ranks if "group" in group.tags else None
    event.root = ast.unparse(root_node) if root_node is not None else ""
    event.reduction = ast.unparse(op_node) if op_node is not None else ""
    event.peer = root
    if spec.on.startswith("@"):
        event.tag = spec.on[1:]
    if spec.kind == "group" and "use_local_synchronization" in made.keywords:
        return UNKNOWN
    frame.emit(event)
    frame.analysis.note_call(event, made, spec, (root, op))
    _make_uniform(frame, made, spec)
    if spec.call == "init_process_group":
        _told_rank(frame, made)
    if spec.call == "all_to_all_single":
        _half_split(frame, made, event)
    if spec.kind == "group":
        if spec.call == "new_group":
            members = made.argument(Argument("ranks", 0))[0]
            alike = members.ranks is not None and len(set(map(str, members.ranks))) == 1
            alike = alike or members.ranks == tuple([rank] for rank in range(WORLD))  # a group of its own for each
            if (members.taint or members.length) and not alike:
                frame.analysis.local_groups.append((event, union(members.taint, members.length)))
        return libraries.group_value(made)
    return libraries.result(frame, made, spec)


def _told_rank(frame: Frame, made: Call) -> None:
    """`init_process_group(rank=gpu)`: whatever it is called, this variable is the rank."""
    value, node = made.argument(Argument("rank", 4))
    text = dotted(node) if node is not None else ""
    if text and not any(isinstance(origin, Origin) for origin in value.taint):
        known = rank_value(frame, made.node, f"{text}, given to init_process_group as the rank", "rank", "world")
        if text in frame.env:
            frame.env[text] = known
        elif "." in text:
            frame.paths[text] = known
            if text.startswith("self."):
                frame.writes[text[5:]] = known


def _half_split(frame: Frame, made: Call, event: Op) -> None:
    """Sizes that this rank worked out from its own data, without those that the others will send."""
    (theirs, out_node), (mine, in_node) = (
        made.argument(Argument(name, at)) for name, at in (("output_split_sizes", 2), ("input_split_sizes", 3))
    )
    given = [node is not None and not _none(node) for node in (out_node, in_node)]
    same = all(given) and out_node is not None and in_node is not None and ast.unparse(out_node) == ast.unparse(in_node)
    if same or given.count(True) == 1:
        taint = union(mine.taint, mine.length, theirs.taint, theirs.length)
        if taint:
            frame.analysis.half_splits.append((event, taint))


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _make_uniform(frame: Frame, made: Call, spec: Collective) -> None:
    for place in spec.uniform - {"result"}:
        if int(place) < len(made.node.args):
            _cleanse(frame, made.node.args[int(place)])
    if "0" in spec.uniform and not made.node.args:
        for keyword in made.node.keywords:
            if keyword.arg in {"tensor", "object_list", "tensor_list", "output_tensor"}:
                _cleanse(frame, keyword.value)


def _cleanse(frame: Frame, node: ast.expr) -> None:
    """All ranks have the same in this variable now."""
    while isinstance(node, ast.Subscript | ast.Starred) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _cleanse(frame, node.func.value)  # x.detach(), x.view(-1)
    text = dotted(node)
    if isinstance(node, ast.Name) and node.id in frame.env:
        frame.env[node.id] = Value(tags=(frame.env[node.id].tags - CARRIED) | {"shared", AGREED_TAG})
    elif text:
        frame.paths[text] = Value(tags=frozenset({"shared", AGREED_TAG}))
        if text.startswith("self."):
            frame.writes[text[5:]] = UNKNOWN
    if isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:
            _cleanse(frame, item)
    return None


def _target(frame: Frame, made: Call) -> Function | Class | None:
    """The function or class of the project that is called."""
    func = made.node.func
    if isinstance(func, ast.Name):
        local = frame.lookup(func.id)
        if local is not None:
            called = local.thing
            if isinstance(called, Class) and "itself" not in local.tags:
                return _method(frame, called, "__call__") or _method(frame, called, "forward")
            return called
    if made.full:
        found = frame.analysis.project.find(made.full)
        if isinstance(found, Function | Class):
            return found
    if not isinstance(func, ast.Attribute):
        return None
    held = _callee(frame, made)
    if held is not None and isinstance(held.thing, Class) and "itself" not in held.tags:
        return _method(frame, held.thing, "__call__") or _method(frame, held.thing, "forward")
    return _method_called(frame, made, func)


def _method_called(frame: Frame, made: Call, func: ast.Attribute) -> Function | None:
    if isinstance(func.value, ast.Name) and func.value.id in {"self", "cls"} and frame.owner is not None:
        own = _method(frame, frame.owner, made.name) or _sibling(frame, frame.owner, made.name)
        if own is not None:
            return own
    if isinstance(func.value, ast.Call) and last_name(func.value.func) == "super" and frame.owner is not None:
        return _inherited(frame, frame.owner, made.name)
    if isinstance(made.receiver.thing, Class):
        name = "forward" if made.name == "apply" and "itself" in made.receiver.tags else made.name
        return _method(frame, made.receiver.thing, made.name) or _method(frame, made.receiver.thing, name)
    if made.receiver_text == "self" or made.full.split(".")[0] in _module_roots(frame):
        return None
    return _only_one(frame, made.name)


def _module_roots(frame: Frame) -> frozenset[str]:
    module = frame.function.module
    if module.roots is None:
        module.roots = frozenset(name.split(".")[0] for name in module.imports.values())
    return module.roots


def _method(frame: Frame, owner: Class, name: str) -> Function | None:
    return frame.analysis.project.method(owner, name)


def _sibling(frame: Frame, owner: Class, name: str) -> Function | None:
    """A method that only the classes have which this one is mixed into."""
    if name not in frame.analysis.project.methods:
        return None
    for heir in frame.analysis.project.heirs(owner):
        if found := frame.analysis.project.method(heir, name):
            return found
    return None


def _inherited(frame: Frame, owner: Class, name: str) -> Function | None:
    for base in owner.bases:
        found = frame.analysis.project.find(base)
        if isinstance(found, Class) and (method := frame.analysis.project.method(found, name)):
            return method
    return None


def _only_one(frame: Frame, name: str) -> Function | None:
    """A method that one class of the project alone has, on an object of unknown class."""
    if name in COMMON or name.startswith("__"):
        return None
    found = frame.analysis.project.methods.get(name, ())
    return found[0] if len(found) == 1 else None


def _entered(frame: Frame, made: Call, target: Function) -> Value:
    """A call of a function of the project, what its decorators do and what derived classes do instead included."""
    around = frame.analysis.wrapper(target)
    if around is not None:
        wrapper, name = around
        itself = Value(thing=target, tags=frozenset({"itself"}))
        frame.emit(Enter(wrapper, made.node.lineno, frame.function, {name: itself}))
    value = _enter(frame, made, target, inside=around is not None)
    if isinstance(made.node.func, ast.Attribute) and made.receiver_text == "self" and target.owner is not None:
        for other in frame.analysis.project.overrides(target.owner, target.name)[:MOST_OVERRIDES]:
            if other is not target and frame.owner is not other.owner:
                value = join([value, _enter(frame, made, other)])
    return value


def _enter(frame: Frame, made: Call, target: Function, param: str = "", *, inside: bool = False) -> Value:
    """A call of one function: noted as an event, and what comes back."""
    bound = binding.bound(made, target)
    frame.analysis.called(target, bound)
    if not inside:
        frame.emit(Enter(target, made.node.lineno, frame.function, bound, param))
    _written_by(frame, made, target)
    summary = frame.analysis.summary(target)
    _changed_here(frame, target, summary)
    if summary.quits:
        quit_by(frame, summary, target, bound, made.node.lineno)
    returns = summary.returns if made.name not in SAME_EVERYWHERE else UNKNOWN
    for name, filled in summary.fills.items():
        node = binding.argument_node(made, target, name)
        if node is not None:
            frame.put_into(node, Value(frame.analysis.substitute(filled, target, bound)))
    taint = frame.analysis.substitute(returns.taint, target, bound)
    length = frame.analysis.substitute(summary.turns if summary.generator else returns.length, target, bound)
    if summary.generator and any("loader" in value.tags for value in bound.values()):
        return Value(taint, length, returns.tags | {"loader"})
    tags = frozenset(tag for tag in returns.tags if tag != "itself" or returns.thing is not None)
    if summary.asks_for and (asked := _asked(frame, made, bound.get(summary.asks_for, UNKNOWN), target)) is not None:
        return asked
    source = rank_sources("call").get(made.name)
    if source is not None and source.kind in _RANKS and returns.ranks is None and not made.args:
        return rank_value(frame, made.node, f"{made.name}()", source.kind, source.axis)
    items = (
        tuple(_substituted(frame, item, target, bound) for item in returns.items) if returns.items else returns.items
    )
    return returns._replace(taint=taint, length=length, tags=tags, items=items)


def _asked(frame: Frame, made: Call, name: Value, target: Function) -> Value | None:
    """A helper around os.environ that is asked for a variable which differs between ranks."""
    if name.ranks is None or not isinstance(name.ranks[0], str):
        return None
    value = environment(frame, made.node, name.ranks[0])
    if not value.taint and value.ranks is None:
        return None
    number = any(isinstance(part, ast.Name) and part.id == "int" for s in target.body for part in ast.walk(s))
    return value._replace(ranks=per_rank(int, value)) if number else value


def _changed_here(frame: Frame, target: Function, summary: Summary) -> None:
    """What a method changes in its object differs afterwards, where only some ranks called it."""
    if target.owner is None or not (summary.counts or summary.grows):
        return
    apart = frozenset(
        origin
        for origin in union(*frame.control, *frame.skips, frame.left)
        if isinstance(origin, ParamOrigin) or origin.kind not in {"rank", "part", "host"}
    )
    for name in summary.counts if apart else ():
        frame.analysis.gather(target.owner, name, Value(apart))
    often = union(apart, *frame.loops)
    for name in summary.grows if often else ():
        frame.analysis.gather(target.owner, name, Value(length=often))


def _written_by(frame: Frame, made: Call, target: Function) -> None:
    """Attributes of self that this function knows, and that a method of the same object may have changed."""
    if made.receiver_text == "self" and frame.paths:
        for name, value in frame.analysis.summary(target).writes.items():
            if (known := frame.paths.get(f"self.{name}")) is not None and known is not value:
                frame.paths[f"self.{name}"] = join([known, value])


def _substituted(frame: Frame, value: Value, target: Function, bound: dict[str, Value]) -> Value:
    taint = frame.analysis.substitute(value.taint, target, bound)
    return value._replace(taint=taint, length=frame.analysis.substitute(value.length, target, bound))


def _construct(frame: Frame, made: Call, target: Class) -> Value:
    """An object of a class of the project: its length may depend on what it is made with."""
    init = frame.analysis.project.method(target, "__init__")
    bound = binding.bound(made, init) if init is not None else {}
    if init is None:
        for name, given in {**dict(zip(binding.declared(target), made.args, strict=False)), **made.keywords}.items():
            frame.analysis.gather(target, name, given)
    if init is not None:
        if made.keywords and binding.takes_anything(init):
            for name, given in made.keywords.items():
                frame.analysis.gather(target, name, given)
        frame.analysis.called(init, bound)
        frame.emit(Enter(init, made.node.lineno, frame.function, bound))
    value = Value(thing=target, tags=libraries.class_tags(frame, target))
    if "thread" in value.tags and (run := frame.analysis.project.method(target, "run")) is not None:
        frame.analysis.later("thread", run, frame.function, made.node.lineno)
    return value._replace(length=frame.analysis.substitute(object_length(frame, value), init, bound))


def _source(frame: Frame, made: Call) -> Value | None:
    """A call whose answer differs between ranks."""
    source = rank_sources("call").get(made.name)
    if source is not None and made.name in _TRANSLATES and len(made.args) > 1:
        return mixed(made.args)
    if source is not None and (mesh := groups.of_mesh(made.node.func, made.receiver)):
        named = made.node.args[0] if made.node.args else None
        said = named.value if isinstance(named, ast.Constant) else mesh
        return rank_value(frame, made.node, f"{made.name}({said})", "part", "mesh")
    if source is not None:
        if made.args or "group" in made.keywords:
            value, node = made.argument(Argument("group", 0))
            group = groups.group_text(value, node)
            if group and source.kind == "rank":
                said = node.value if isinstance(node, ast.Constant) else group
                return rank_value(frame, made.node, f"{made.name}({said})", "part", "group")
        return rank_value(frame, made.node, f"{made.name}()", source.kind, source.axis)
    if made.name in {"step", "reset", "rollout", "collect"} and _ENVIRONMENT.search(made.receiver_text):
        origin = Origin("data", f"the simulation of this rank ({made.receiver_text})", *frame.at(made.node))
        return Value(frozenset({origin}))
    known = rank_sources("function").get(made.full)
    if known is not None:
        if known.kind == "random" and (frame.analysis.seeded or "generator" in made.keywords):
            return UNKNOWN
        value = rank_value(frame, made.node, f"{made.full}()", known.kind, known.axis)
        return value._replace(length=value.taint)
    for how, words in (
        ("path method", ("path", "file", "ckpt", "checkpoint", "dir")),
        ("queue method", ("queue", "q")),
    ):
        method = rank_sources(how).get(made.name)
        hint = made.receiver_text.rpartition(".")[2].lower()
        named = any(word in hint for word in words[:-1]) or hint == words[-1] or hint.endswith(f"_{words[-1]}")
        if method is not None and (named or how.split()[0] in made.receiver.tags):
            value = rank_value(frame, made.node, f"{made.receiver_text}.{made.name}()", method.kind, method.axis)
            return value.tagged("optional") if how == "queue method" else value
    if made.name in {"get", "getenv", "pop"} and ("environ" in made.receiver_text or made.full == "os.getenv"):
        first = made.node.args[0] if made.node.args else None
        return asked_environment(frame, made.node, first)
    return None


def _unknown(frame: Frame, made: Call) -> Value:
    """A call into a library: what it gets may show in what it returns."""
    if made.name in FILLS and isinstance(made.node.func, ast.Attribute):
        named = {**((made.args[0].fields or {}) if made.args else {}), **made.keywords}
        if made.name == "update" and named:
            for key, value in named.items():
                frame.put_into(made.node.func.value, value, key=key)
        else:
            put = mixed(made.args)._replace(holds=functions_of(made.args), kinds=objects_of(made.args))
            frame.put_into(made.node.func.value, put, grows=True)
    elif made.name.endswith("_") and made.args and isinstance(made.node.func, ast.Attribute):
        frame.put_into(made.node.func.value, mixed(made.args))  # add_(), copy_() and the like
    tried = frame.trying and (made.name in RISKY or any(value.taint for value in made.args))
    if tried or made.name in READS:  # callers may catch what reading raises
        origin = Origin("exception", f"{made.name}() may fail on one rank alone", *frame.at(made.node))
        frame.emit(Risk(origin, made.node.lineno))
    if made.name in SAME_EVERYWHERE:
        return constant(WORLD) if made.name == "get_world_size" and not made.args else UNKNOWN
    if (held := _from_container(made)) is not None:
        return held
    parts = [made.receiver, *made.args, *(v for k, v in made.keywords.items() if k not in libraries.PLACEMENT)]
    carried = frozenset().union(*(part.tags & CARRIED for part in parts)) if parts else frozenset()
    if made.name[:1].isupper():  # an object made with a rank is not itself one; made with a list, it may be as long
        length = union(*(part.length for part in parts))
        return Value(length=length, tags=carried) if carried or length else UNKNOWN
    if made.name in libraries.KEEPS_RECEIVER and isinstance(made.node.func, ast.Attribute):
        return made.receiver._replace(ranks=None)
    return _computed(frame, made, mixed(parts))


def _from_container(made: Call) -> Value | None:
    """What a dictionary or a registry of functions gives back."""
    if made.name in LOOKUPS:
        return looked_up(made.receiver, *(made.args[:2] or [UNKNOWN]))
    if made.name in {"values", "items", "copy"} and (made.receiver.holds or made.receiver.fields):
        held = made.receiver if made.receiver.holds else join((made.receiver.fields or {}).values())
        kept = Value(made.receiver.taint, made.receiver.length, thing=held.thing, holds=held.holds, kinds=held.kinds)
        return kept.tagged("pairs") if made.name == "items" else kept
    return None


def _computed(frame: Frame, made: Call, value: Value) -> Value:
    """What a call of a library makes of its arguments: whether it differs, and in what."""
    if made.name in MODEL_NAMES and made.args and not any(isinstance(origin, Origin) for origin in value.taint):
        origin = Origin("data", "the model's output on this rank's data", *frame.at(made.node))
        value = value._replace(taint=value.taint | {origin})
    if made.receiver.length and made.name not in libraries.REDUCES:
        value = value._replace(length=made.receiver.length)
    if made.name in libraries.COUNTS:
        return Value(union(value.taint, made.receiver.length))
    if made.name == "bool" and isinstance(made.node.func, ast.Attribute):
        return value.tagged("mask")
    padding = made.keywords.get("padding", UNKNOWN)
    if padding.ranks is not None and padding.ranks[0] in {True, "longest"} and value.taint:
        return value._replace(length=value.taint).tagged("padded")
    if made.name in libraries.SHAPED_BY_CONTENT and value.taint:
        return value._replace(length=value.taint)
    if made.name in libraries.SHARDS and (marks := union(*(v.taint for v in [*made.args, *made.keywords.values()]))):
        return value._replace(length=marks)
    return value
