from __future__ import annotations

import json
import resource
import subprocess

import jsonschema
import pytest

from whichrank.cli.tools.schema import schemas


def test_text(whichrank):
    done = whichrank("explain", "xid", "79")
    assert done.returncode == 0
    assert done.stdout.startswith("Xid 79")
    assert "Source:" in done.stdout


def test_a_negative_number_is_no_option(whichrank):
    assert "SIGKILL" in whichrank("explain", "-9").stdout


def test_json_keeps_its_schema(whichrank):
    schema = json.loads(schemas()["explain"].read_text())
    for words in (("79",), ("ecc-error",), ("NCCL_TIMEOUT",), ("COLL101",), ("foobarbaz",)):
        document = json.loads(whichrank("explain", "--format", "json", *words).stdout)
        jsonschema.validate(document, schema)


def test_what_is_unknown_exits_with_3_and_says_what_is_near(whichrank):
    done = whichrank("explain", "ecc-eror")
    assert done.returncode == 3
    assert "ecc-error" in done.stderr


def test_a_pasted_message_from_standard_input(whichrank):
    done = whichrank("explain", "-", stdin="[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert done.returncode == 0
    assert "ECC" in done.stdout


@pytest.mark.bars
def test_it_is_quick(whichrank_process):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done: subprocess.CompletedProcess[str] = whichrank_process(
        "explain", "some", "words", "that", "resemble", "no", "message"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 3
    # The bar is 250 ms of CPU; a slow machine needs more.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.6
