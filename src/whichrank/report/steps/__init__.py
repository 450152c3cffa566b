"""Formats of `trace`: one per file, `NAME` and `render(report)`."""

from __future__ import annotations

FORMATS = ("text", "json", "markdown", "html")
