"""What an object is that a method is called on: by what is known of it, or by its name and the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from whichrank.source.code.values import Origin
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_NAMED = {
    "accelerator": re.compile(r"(?:^|\.|_)accelerator$|^PartialState$"),
    "state": re.compile(r"(?:^|\.)(?:distributed_|partial_)?state$|PartialState"),
    "strategy": re.compile(r"(?:^|\.)(?:strategy|_strategy|training_type_plugin)$"),
    "fabric": re.compile(r"(?:^|\.|_)fabric$"),
    "deepspeed": re.compile(r"(?:^|\.|_)(?:model_engine|ds_engine|deepspeed_engine)$"),
}


def is_a(frame: Frame, made: Call, tag: str) -> bool:
    """Whether the receiver of a call is such a thing."""
    if tag in made.receiver.tags:
        # The state_dict of FSDP2 gives every rank its own shards as DTensors, without communication.
        own = made.name in {"state_dict", "load_state_dict"} and "fsdp2" in made.receiver.tags
        return not own and not (tag == "wrapped_output" and frame.no_sync)
    if tag in {"ddp", "fsdp"}:
        return False
    known = _RECEIVERS.get(tag)
    if known is not None:
        return known(frame, made)
    if tag == "strategy" and made.name != "barrier" and not uses(frame, "lightning"):
        return False
    named = _NAMED.get(tag)
    return named is not None and bool(made.receiver_text) and named.search(made.receiver_text) is not None


def _is_trainer(frame: Frame, made: Call) -> bool:
    return made.receiver_text in {"trainer", "self.trainer"} and uses(frame, "lightning")


def _is_lightning_module(frame: Frame, made: Call) -> bool:
    return made.receiver_text in {"self", "pl_module"} and _is_lightning(frame)


def _is_metric(frame: Frame, made: Call) -> bool:
    return "metric" in made.receiver_text.lower() and uses(frame, "torchmetrics")


def _of_wrapped(frame: Frame, made: Call) -> bool:
    """`loss.backward()` where it is not known what made the loss, and the project wraps its model."""
    if made.name != "backward":
        return False
    unknown = not made.receiver.tags and not any(isinstance(origin, Origin) for origin in made.receiver.taint)
    return unknown and frame.analysis.traits.averages and not frame.no_sync and "loss" in made.receiver_text.lower()


def _is_hf_trainer(frame: Frame, made: Call) -> bool:
    """A trainer of transformers: a variable of that name, or the base of a class that derives from it."""
    func = made.node.func
    above = (
        isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) and last_name(func.value.func) == "super"
    )
    if above or made.receiver_text == "self":
        bases = frame.analysis.project.lineage(frame.owner) if frame.owner is not None else ()
        return any(base.startswith(("transformers.", "trl.")) and base.endswith("Trainer") for base in bases)
    return made.receiver_text in {"trainer", "self.trainer"} and uses(frame, "transformers")


def uses(frame: Frame, word: str) -> bool:
    return any(word in name for name in frame.function.module.imports.values())


def _is_lightning(frame: Frame) -> bool:
    if frame.owner is None:
        return False
    names = [base.rpartition(".")[2] for base in frame.analysis.project.lineage(frame.owner)]
    return bool({"LightningModule", "Callback", "LightningDataModule"} & set(names))


_RECEIVERS: dict[str, Callable[[Frame, Call], bool]] = {
    "wrapped_output": _of_wrapped, "trainer": _is_trainer, "hf_trainer": _is_hf_trainer,
    "lightning_module": _is_lightning_module, "metric": _is_metric,
}  # fmt: skip
