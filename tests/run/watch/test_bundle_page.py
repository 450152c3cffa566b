"""The page on bundles names what captures write."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.run.watch.capture.test_capture_steps import member
from whichrank.run.watch.capture import __file__ as capture
from whichrank.run.watch.samples import History

PAGE = (ROOT / "docs" / "bundles.md").read_text()


def test_every_place_in_a_bundle_is_told():
    code = "".join(path.read_text() for path in Path(capture).parent.glob("*.py"))
    places = set(re.findall(r'"((?:host|ras|stacks|environment|logs|dumps)/[^"{]*)', code))
    assert len(places) > 10
    told = re.findall(r"`([^`]+)`", PAGE)
    assert {place for place in places if not any(name.startswith(place) for name in told)} == set()


def test_every_key_of_the_history_is_told(tmp_path):
    keys = History(tmp_path)._line(member(), {})
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()
