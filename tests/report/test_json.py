from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from msgspec.structs import replace

from tests import standin
from whichrank import report
from whichrank.model.evidence import Ref
from whichrank.report import json as json_report

SCHEMA = json.loads((Path(report.__file__).parent / "schemas" / "diagnose.schema.json").read_text())


def document(diagnosis):
    return json.loads("".join(json_report.render(diagnosis)))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("make", [standin.hang, standin.healthy, standin.unknown, partial(standin.large, 1024)])
def test_output_keeps_the_schema(make):
    jsonschema.Draft202012Validator(SCHEMA).validate(document(make()))


def objects(schema):
    """Every object of the schema with its documented keys."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for inner in schema.values():
            yield from objects(inner)


def test_every_documented_key_is_required_so_that_none_can_be_left_out():
    for schema in objects(SCHEMA):
        assert sorted(schema["required"]) == sorted(schema["properties"])


def test_the_schema_refuses_what_the_contract_does_not_know():
    good = document(standin.hang())
    good["verdict"]["category"] = "sad"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(good)


def test_values_are_where_the_contract_says():
    told = document(standin.hang())
    assert told["schema_version"] == 1
    assert told["verdict"]["culprits"]["ranks"] == [2]
    assert told["verdict"]["culprits"]["code"] == [
        {"file": "/opt/job/train.py", "line": 118, "function": "sync_grads", "rank": 2}
    ]
    assert told["verdict"]["certificate"][0]["waits"] == "world 5"
    assert [f["id"] for f in told["findings"]] == ["f0", "f1"]
    assert told["findings"][1]["consequence_of"] == ["f0"]
    assert told["waits"] == [{"rank": 0, "group": "g0", "seq": 5, "op": "all_reduce", "for": [2]}]
    assert told["groups"][0]["diverged"]["absent"] == [2]
    assert told["groups"][1]["diverged"] is None
    assert told["ranks"][1] == {
        "rank": 3,
        "host": None,
        "pid": None,
        "gpu": None,
        "coords": {},
        "state": "unknown",
        "at": None,
        "after": None,
        "seen": None,
    }
    assert told["coverage"]["rules"]["not_evaluated"] == [{"code": "SLOW101", "missing": "timing of the collectives"}]


def test_unknown_is_null():
    told = document(standin.unknown())
    assert told["verdict"]["cause"] is None
    assert told["verdict"]["certificate"] is None
    assert told["job"]["world_size"] is None
    assert told["coverage"]["sources"][0]["reader"] is None


def test_numbers_from_columns_and_names_of_any_bytes_are_written():
    ref = Ref("fr_\udcff", "entry 1", "q", rank=np.int32(3))
    told = document(replace(standin.hang(), findings=(standin.finding(evidence=(ref,)),)))
    assert told["findings"][0]["evidence"][0]["rank"] == 3
    assert told["findings"][0]["evidence"][0]["source"] == "fr_\\udcff"


def test_what_a_terminal_might_obey_is_escaped():
    hostile = "a\x9b31m\u202eb\u2066\ufeff\x7f\U000e0041ü"
    diagnosis = standin.hang()
    diagnosis = replace(diagnosis, verdict=replace(diagnosis.verdict, summary=hostile))
    text = "".join(json_report.render(diagnosis))
    assert not any(sign in text for sign in "\x9b\u202e\u2066\ufeff\x7f\U000e0041")
    assert "ü" in text
    assert json.loads(text)["verdict"]["summary"] == hostile
