"""For scripts: `whichrank schema compare`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whichrank.model.difference import Difference


def render(differences: list[Difference], looked: list[str]) -> Iterator[str]:
    document = {"schema_version": 1, "differences": [d.as_json() for d in differences], "looked_at": looked}
    yield msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
