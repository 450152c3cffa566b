"""Packages that take seconds to import: a file that needs one is collected without it, and imports it when it runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import pytest


class later:  # noqa: N801 - it stands for a module
    """A module that is imported when a test first uses something of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if "PYTEST_CURRENT_TEST" not in os.environ:  # pytest looks at everything in a file that it collects
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def package(name: str) -> Any:
    """The package; the tests of a file that asks for it are skipped where it is not installed."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return later(name)
