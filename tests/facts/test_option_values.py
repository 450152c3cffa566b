"""Values that are lists: options of the CUDA allocator, devices."""

import pytest

from whichrank.facts.variables.environment import catalogue, others
from whichrank.facts.variables.values import problem


def wrong(name, value):
    return problem(others().get(name) or catalogue()[name], value) is not None


@pytest.mark.parametrize(
    ("value", "is_wrong"),
    [
        ("expandable_segments:True", False),
        ("expandable_segments:true", True),
        ("expandable_segments=True", True),
        ("max_split_size_mb:512,garbage_collection_threshold:0.8", False),
        ("max_split_size_mb:20", True),
        ("max_split_size_mb:512;expandable_segments:True", True),
        ("garbage_collection_threshold:80", True),
        ("roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:False", False),
        ("backend:cudaMallocAsync", False),
        ("backend:async", True),
    ],
)
def test_options_of_the_allocator(value, is_wrong):
    assert wrong("PYTORCH_CUDA_ALLOC_CONF", value) is is_wrong


@pytest.mark.parametrize(
    ("value", "is_wrong"),
    [
        ("0,1", False),
        ("GPU-8932f937-d72c", False),
        ("-1", False),
        ("", False),
        ("0-3", True),
        ("all", True),
        ("0 1", True),
    ],
)
def test_devices(value, is_wrong):
    assert wrong("CUDA_VISIBLE_DEVICES", value) is is_wrong
