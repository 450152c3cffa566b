"""A wrapped model that is used past its wrapper: `model.module(x)` in training."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.records.code import Habit
from whichrank.source.code.evaluating.choices import PAST_WRAPPER
from whichrank.source.code.evaluating.names import INNER
from whichrank.source.code.paths.differences import place
from whichrank.source.code.replicas import averages_by_hand
from whichrank.source.code.values import Value
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Analysis
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

HOOKED = frozenset({"ddp", "fsdp"})
_NO_PASS = frozenset({
    "state_dict", "load_state_dict", "parameters", "named_parameters", "modules", "named_modules", "buffers", "eval",
    "train", "to", "cuda", "cpu", "half", "float", "generate", "save_pretrained", "zero_grad", "requires_grad_",
    "register_forward_hook", "register_buffer", "apply", "get_input_embeddings", "children", "named_children",
})  # fmt: skip


def is_inner(attribute: str, base: Value) -> bool:
    """Whether an attribute is the model inside a wrapper; what Accelerate prepared may be another wrapper."""
    return attribute == "module" and bool(base.tags & HOOKED) and "prepared" not in base.tags


def passed_by(frame: Frame, made: Call, value: Value) -> Value:
    """What a call gives back; noted where it is computed past the wrapper, and where that is differentiated."""
    if made.name == "backward" and PAST_WRAPPER in made.receiver.tags and not frame.no_sync:
        if "wrapped_output" not in made.receiver.tags:
            frame.analysis.notes.past_wrapper.append((frame.function, made.node.lineno))
        return value
    if made.name == "detach" and PAST_WRAPPER in made.receiver.tags:
        calls = frame.analysis.notes.inner_calls
        calls[:] = [call for call in calls if call != (frame.function, made.node.lineno)]
        return value._replace(tags=value.tags - {PAST_WRAPPER})
    if not (made.args or made.keywords) or made.name in _NO_PASS or not _on_inner(frame, made):
        return value
    given = (*made.args, *made.keywords.values())
    if any("wrapped_output" in each.tags for each in given):  # `model.module.loss(model(x), y)`
        return value
    frame.analysis.notes.inner_calls.append((frame.function, made.node.lineno))
    return value.tagged(PAST_WRAPPER)


def _on_inner(frame: Frame, made: Call) -> bool:
    func = made.node.func
    if isinstance(func, ast.Name):
        known = frame.lookup(func.id)
        return known is not None and INNER in known.tags and not known.tags & HOOKED
    inner = INNER in made.receiver.tags and not made.receiver.tags & HOOKED
    return inner or (isinstance(func, ast.Attribute) and is_inner(last_name(func), made.receiver))


def past_wrappers(analysis: Analysis, called: frozenset[str]) -> Iterator[Habit]:
    """Losses that are computed past the wrapper and differentiated; not where the program averages by itself."""
    if not analysis.notes.past_wrapper or "average_parameters" in called:
        return
    if any(map(averages_by_hand, analysis.project.modules.values())):
        return
    for function, line in dict.fromkeys(analysis.notes.past_wrapper):
        inner = [at for where, at in analysis.notes.inner_calls if where is function and at <= line]
        said = "the model is called past its wrapper: the backward pass does not reduce these gradients over the ranks"
        at = max(inner, default=line)
        others = (place(function.module, line),) if at != line else ()
        yield Habit("past wrapper", place(function.module, at), said, others)
