"""The table of tokens, and the face that notifications use."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

from tests import cost
from whichrank.facts.redaction import host_places, person_places
from whichrank.facts.redaction.places import Place
from whichrank.facts.redaction.redactor import without_secrets
from whichrank.facts.redaction.secret_names import name_is_secret
from whichrank.facts.redaction.secrets import tokens


def test_every_token_has_its_keyword_and_a_source():
    for token in tokens():
        assert token.source
        assert token.keyword.lower() in token.pattern.pattern.lower().replace("\\", ""), token.kind


def test_secrets_go_and_names_stay():
    told = without_secrets("rank 3 on gpu7 at 10.0.0.3: HF_TOKEN=hf_abcdefghijklmnop --password x9$ http://u:pw@h/ ok")
    assert told == "rank 3 on gpu7 at 10.0.0.3: HF_TOKEN=redacted --password redacted http://redacted@h/ ok"


@pytest.mark.parametrize(("name", "strength"), [
    ("AWS_SECRET_ACCESS_KEY", "strong"), ("dbPassword", "strong"), ("WANDB_API_KEY", "strong"), ("PWD", ""), ("num_tokens", ""),
    ("eos_token_id", ""), ("tokenizer", ""), ("key", "weak"), ("monkey", ""), ("NCCL_DEBUG", ""), ("authToken", "strong"),
    ("requirepass", "strong"), ("smtppwd", "strong"), ("bypass", ""), ("compass", ""),
])  # fmt: skip
def test_names_of_secrets(name, strength):
    assert name_is_secret(name) == strength


@pytest.mark.parametrize(("text", "shown"), [
    (r'{"password": "a\"b c", "next": "stays"}', '{"password": "redacted", "next": "stays"}'),
    ("db.lan:5432:runs:tracker:pw-of-db", "db.lan:5432:runs:tracker:redacted"),
    ("racadm -r bmc -u root -p calvin9 getsel", "racadm -r bmc -u root -p redacted getsel"),
    ("the password is mellonfriend", "the password is redacted"),
    ("the password is required", "the password is required"),
    ("squeue -u me -p gpu-long", "squeue -u me -p gpu-long"),
    ("train.py:25:step:loss:0.3", "train.py:25:step:loss:0.3"),
])  # fmt: skip
def test_passwords_in_commands_settings_and_sentences(text, shown):
    assert without_secrets(text) == shown


def all_patterns():
    tables = (value for module in (host_places, person_places) for value in vars(module).values())
    for table in tables:
        places = (table,) if isinstance(table, Place) else table if isinstance(table, tuple) else ()
        yield from (place.pattern for place in places if isinstance(place, Place))
    yield from (token.pattern for token in tokens())


def test_no_pattern_takes_long_on_hostile_text():
    for unit in (
        "a",
        "a.",
        "a-",
        "1.",
        "a:",
        "/home/",
        "x@",
        "[1,",
        "\\",
        "password ",
        "key=",
        "-",
        "a1-",
        "::",
        "A B ",
    ):
        text = unit * (6_000 // len(unit))
        for pattern in all_patterns():
            with cost.at_most(5):
                sum(1 for _ in pattern.finditer(text))
