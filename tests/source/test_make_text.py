"""Variables and functions of make."""

import pytest

from whichrank.records.settings import UNKNOWN
from whichrank.source.formats.make_text import expand

VALUES = {"VARS": "A=1 B=2", "IMAGE": "lab/x:1", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("run $(IMAGE) ${IMAGE}", "run lab/x:1 lab/x:1"),
        ("echo $$HOME", "echo $HOME"),
        ("$(foreach v,$(VARS),-e $(v))", "-e A=1 -e B=2"),
        ("$(addprefix -x ,$(VARS))", "-x A=1 -x B=2"),
        ("$(patsubst %,-e %,$(VARS))", "-e A=1 -e B=2"),
        ("$(strip  a   b )", "a b"),
        ("$(shell date) $@", f"{UNKNOWN} {UNKNOWN}"),
        ("$(NOBODY)$(EMPTY)", UNKNOWN),
        ("open $(foreach v,$(VARS)", f"open {UNKNOWN}"),
        ("$(", UNKNOWN),
    ],
)
def test_text(text, made):
    assert expand(text, VALUES) == made


def test_functions_inside_functions_end():
    assert expand("$(strip " * 200 + "x" + ")" * 200, {}) == UNKNOWN
