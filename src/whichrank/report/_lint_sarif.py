"""Findings on code as SARIF 2.1.0, for code-scanning services."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from whichrank import __version__
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(findings: Iterable[Finding], titles: Mapping[str, str]) -> Iterator[str]:
    """One run; `titles` are the rules that were asked: code -> first line of the page."""
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "whichrank",
                        "version": __version__,
                        "rules": [
                            {"id": code, "shortDescription": {"text": title}} for code, title in sorted(titles.items())
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding) for finding in findings],
            }
        ],
    }
    yield json.dumps(document, indent=2) + "\n"


def _result(finding: Finding) -> dict[str, Any]:
    first, *path = finding.evidence
    text = " ".join([finding.message, *(f"Fix: {step}" for step in finding.fix)])
    return {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(first)],
        "relatedLocations": [{**_location(ref), "message": {"text": ref.quote or ref.locator}} for ref in path],
    }


def _location(ref: Ref) -> dict[str, Any]:
    line = ref.line
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(ref.source)}, "region": {"startLine": line}}}


def _uri(source: str) -> str:
    from urllib.parse import quote

    return quote(source)
