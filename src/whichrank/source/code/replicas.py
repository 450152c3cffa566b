"""Replicas that average gradients by hand and start from different weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whichrank.records.code import Habit
from whichrank.source.code.index import Class, Function, Module, Project, resolve
from whichrank.source.code.paths.differences import place
from whichrank.source.nodes import dotted, last_name, walk

_SYNCS = frozenset({
    "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "broadcast", "prepare", "initialize",
    "sync_module_states", "load_state_dict", "broadcast_parameters", "fully_shard", "setup", "broadcast_object_list",
    "broadcast_coalesced", "_broadcast_coalesced", "from_pretrained",
})  # fmt: skip
_AVERAGES = frozenset(
    {"all_reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"}
)
_ONE_NUMBER = frozenset({
    "norm", "vector_norm", "sum", "square", "mean", "max", "amax", "isfinite", "isnan", "isinf", "item", "any", "all",
    "numel", "get_total_norm", "clip_grad_norm_", "_foreach_norm", "len", "is_sparse", "size",
})  # fmt: skip
"""What is computed of a gradient is no gradient."""
_LAYERS = frozenset({"Linear", "Sequential", "Transformer"})
_SWITCHES = frozenset({"requires_grad", "no_grad", "zero_grad", "enable_grad", "retain_grad"})
_OF_MODELS = ("state_dict", "train", "eval", "named_parameters", "to", "cuda")
_PASSES = 3


def unseeded(project: Project, called: frozenset[str], seeded: frozenset[str]) -> Iterator[Habit]:
    """Replicas that start from different random weights and are averaged by hand; `manual_seed(rank)` is no help."""
    if "init_process_group" not in called or "backward" not in called or "torch" in seeded or called & _SYNCS:
        return
    if not called & _AVERAGES or not any(_makes_model(project, module) for module in project.modules.values()):
        return
    made = [place(module, line) for module in project.modules.values() for line in _models(module)][:1]
    for module in project.modules.values():
        if (line := next(_averaged(module), 0)) > 0:
            said = "gradients are averaged by hand, and nothing makes the ranks start from the same weights"
            averaged = place(module, line)
            yield Habit("unseeded", *((made[0], said, (averaged,)) if made else (averaged, said)))


def _models(module: Module) -> Iterator[int]:
    """The lines where a function makes a model: an object that it calls, or whose parameters it takes, too."""
    for function in [*module.everything, *([module.body] if module.body is not None else [])]:
        nodes = walk(function.node) if function.node is not None else _outside(function)
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        used = {dotted(func) for func in calls}
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = dotted(node.targets[0])
                if f"{name}.parameters" in used or (name in used and any(f"{name}.{of}" in used for of in _OF_MODELS)):
                    yield node.lineno


def _makes_model(project: Project, module: Module) -> bool:
    """Whether a file makes a module of torch, or an object of a class of the project that derives from one."""
    for node in module.nodes:
        text = dotted(node.func) if isinstance(node, ast.Call) else ""
        if not text or not text.rpartition(".")[2][:1].isupper():
            continue
        full = resolve(module, text)
        if full.startswith("torch.nn.") or text.rpartition(".")[2] in _LAYERS:
            return True
        found = project.find(full)
        if isinstance(found, Class) and any(base.rpartition(".")[2] == "Module" for base in project.lineage(found)):
            return True
    return False


def averages_by_hand(module: Module) -> bool:
    """Whether a file reduces gradients over the ranks itself."""
    return next(_averaged(module), 0) > 0


def _averaged(module: Module) -> Iterator[int]:
    """The lines where gradients are reduced over the ranks."""
    for function in [*module.everything, *([module.body] if module.body is not None else [])]:
        nodes = walk(function.node) if function.node is not None else _outside(function)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        reductions = [call for call in calls if last_name(call.func) in _AVERAGES and call.args]
        if reductions:
            names = _gradients(nodes)
            yield from (call.lineno for call in reductions if any(_is_gradient(a, names) for a in call.args))


def _outside(body: Function) -> list[ast.AST]:
    """The nodes of a module that are in no function."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node for statement in body.body if not isinstance(statement, kinds) for node in walk(statement)]


def _gradients(nodes: list[ast.AST]) -> frozenset[str]:
    """Variables and attributes that hold gradients: `flat` of `flat = torch.cat([p.grad for p in …])`."""
    names: frozenset[str] = frozenset()
    for _ in range(_PASSES):
        found = {text for node in nodes for text in _filled(node, names)}
        if found <= names:
            break
        names |= found
    return names


def _filled(node: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """What one node puts gradients into, by an assignment, a loop, an `out=` or a copy."""
    if isinstance(node, ast.Assign) and _is_gradient(node.value, names):
        yield from (text for target in node.targets for text in _texts(target))
    elif isinstance(node, ast.For | ast.comprehension) and _is_gradient(node.iter, names):
        yield from _texts(node.target)
    elif isinstance(node, ast.Call) and any(_is_gradient(argument, names) for argument in node.args):
        yield from (text for k in node.keywords if k.arg == "out" for text in _texts(k.value))
        if last_name(node.func) in {"copy_", "append", "extend"} and isinstance(node.func, ast.Attribute):
            yield from _texts(node.func.value)


def _texts(target: ast.AST) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _texts(each)
        return
    inner: ast.AST | None = target
    while inner is not None:
        target, inner = inner, _holder(inner)
    if text := dotted(target):
        yield text


def _holder(node: ast.AST) -> ast.AST | None:
    """What `x[a:b]` or `x.view(-1)` is a part of."""
    if isinstance(node, ast.Subscript):
        return node.value
    return node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _is_gradient(node: ast.AST, names: frozenset[str]) -> bool:
    """Whether an expression is made of gradients, and not of one number that was computed from them."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and last_name(node.func) in _ONE_NUMBER):
        return False
    if isinstance(node, ast.Name | ast.Attribute) and (dotted(node) in names or _named_so(last_name(node))):
        return True
    return any(_is_gradient(child, names) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.keyword))


def _named_so(name: str) -> bool:
    return name.rpartition("_")[2] in {"grad", "grads", "gradient", "gradients"} and name not in _SWITCHES
