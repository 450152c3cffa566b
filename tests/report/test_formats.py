"""Every format keeps the contract of `whichrank.model.contracts.Format`."""

from __future__ import annotations

from html import unescape

import pytest

from tests import standin
from whichrank import report


@pytest.mark.parametrize("name", report.names())
@pytest.mark.parametrize("make", [standin.hang, standin.healthy, standin.unknown])
def test_format(name, make):
    module = report.load(name)
    assert name == module.NAME
    first, second = ["".join(module.render(make())) for _ in range(2)]
    assert first == second
    assert first.endswith("\n")
    assert make().verdict.summary.split(";")[0][:30] in unescape(first)
