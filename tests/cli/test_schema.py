from __future__ import annotations

import json

import jsonschema
import pytest

from whichrank.cli.tools.schema import schemas


def test_names_are_listed(whichrank):
    assert whichrank("schema").stdout.split() == list(schemas())


@pytest.mark.parametrize("name", list(schemas()))
def test_every_schema_is_printed_and_is_one(whichrank, name):
    done = whichrank("schema", name)
    assert done.returncode == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(done.stdout))


def test_other_names_are_refused(whichrank):
    done = whichrank("schema", "diagnos")
    assert done.returncode == 2
    assert "diagnose" in done.stderr
