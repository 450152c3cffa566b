"""Records by the name of their kind."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import whichrank
from whichrank.model.evidence import Ref
from whichrank.records.of_kind import of_kind
from whichrank.records.trial import Trial

SOURCE = Path(whichrank.__file__).parent
NAMED = re.compile(r"\bof_kind\((?:pile|reading\.records|records), \"([\w.]+)\"")


def test_every_kind_that_is_asked_for_exists() -> None:
    """A name that is misspelt, or whose module has moved, would find nothing without a word."""
    kinds = {kind for path in SOURCE.rglob("*.py") for kind in NAMED.findall(path.read_text())}
    assert len(kinds) > 8
    for kind in kinds:
        module, _, name = kind.rpartition(".")
        assert isinstance(getattr(import_module(f"whichrank.records.{module}"), name), type)


def test_records_of_a_kind() -> None:
    tried = Trial("NCCL_P2P_DISABLE=1", "helped", Ref("ticket.txt", "line 1", "it works with it"))
    assert of_kind([1, tried, "a"], "trial.Trial") == [tried]
    assert of_kind([1, tried], "nobody_has_read.This") == []
