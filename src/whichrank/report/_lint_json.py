"""Findings on code as JSON: the shapes of `diagnose`, with what was ignored by comment beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from whichrank import __version__
from whichrank.model.evidence import Coverage
from whichrank.model.findings import Finding
from whichrank.report import json as shapes
from whichrank.report._safe_json import safe_json


def render(findings: Sequence[Finding], coverage: Coverage, suppressed: Sequence[Finding]) -> Iterator[str]:
    """The document that the schema `lint` describes."""
    document = {
        "schema_version": shapes.SCHEMA_VERSION,
        "tool": {"name": "whichrank", "version": __version__},
        "findings": [shapes.finding(index, found) for index, found in enumerate(findings)],
        "suppressed": [
            {"code": found.code, "source": found.evidence[0].source, "locator": found.evidence[0].locator}
            for found in suppressed
        ],
        "coverage": shapes.coverage(coverage),
    }
    encoded = msgspec.json.encode(shapes.writable(document))
    yield safe_json(msgspec.json.format(encoded, indent=2).decode()) + "\n"
