"""What must agree between members, and what may differ."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.timeline.by_hand import Did, call
from whichrank.timeline.collectives.signature import bare_name, differs_in, proves_all_joined, signature


@pytest.mark.parametrize(
    ("recorded", "bare"),
    [
        ("_all_gather_base", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_gather_into_tensor", "all_gather"),
        ("send 0->1", "send"),
        ("ALLGATHER_coalesced", "allgather_coalesced"),
        ("all_reduce_barrier", "all_reduce_barrier"),
    ],
)
def test_names_without_decoration(recorded: str, bare: str) -> None:
    assert bare_name(recorded) == bare


def aspect(one: Did, other: Did) -> str:
    return differs_in(signature(call(one)), signature(call(other)))


def test_the_first_aspect_that_differs() -> None:
    base = Did("0", "all_reduce", 1)
    assert aspect(base, base) == ""
    assert aspect(base, replace(base, op="broadcast", numel=3, dtype="Half")) == "op"
    assert aspect(base, replace(base, numel=3, dtype="Half")) == "size"
    assert aspect(base, replace(base, dtype="Half")) == "dtype"


def test_another_line_is_no_disagreement() -> None:
    assert aspect(Did("0", "all_reduce", 1, line=1), Did("0", "all_reduce", 1, line=2)) == ""


def test_all_to_all_may_be_uneven() -> None:
    assert aspect(Did("0", "all_to_all", 1, numel=3), Did("0", "all_to_all", 1, numel=900)) == ""


def test_only_the_root_of_a_gather_has_outputs_and_of_a_scatter_inputs() -> None:
    for op, empty in (("gather", "output_sizes"), ("scatter", "input_sizes")):
        root = call(Did("0", op, 1))
        other = replace(root, **{empty: (), empty.replace("sizes", "dtypes"): ()})
        assert differs_in(signature(root), signature(other)) == ""


def test_nccls_recorder_has_what_a_scatter_brings_among_the_inputs() -> None:
    base = call(Did("0", "scatter", 1))
    root = replace(
        base, input_sizes=((8,),), output_sizes=((8,), (8,)), input_dtypes=("Byte",), output_dtypes=("Byte", "Byte")
    )
    member = replace(root, output_sizes=((0,),), output_dtypes=("UNKNOWN_SCALAR",))
    assert differs_in(signature(root), signature(member)) == ""
    assert differs_in(signature(root), signature(replace(member, input_sizes=((9,),)))) == "size"


def test_a_zero_dimensional_tensor_has_one_element() -> None:
    scalar = replace(call(Did("0", "all_reduce", 1)), input_sizes=((),), output_sizes=((),))
    assert signature(scalar).inputs == (1,)
    assert str(signature(scalar)) == "all_reduce(1 element, Float)"


def test_a_finished_broadcast_proves_nothing_of_the_others() -> None:
    assert proves_all_joined("all_reduce_barrier")
    assert not proves_all_joined("broadcast")
    assert not proves_all_joined("reduce")
