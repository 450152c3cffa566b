"""The verb `lint`: outputs keep their schemas, exit codes the contract, comments and options are obeyed."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from whichrank.cli.tools.schema import schemas

GUARDED = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("saved")
    dist.barrier()
dist.destroy_process_group()
"""
RIGHT = GUARDED.replace("    dist.barrier()", "dist.barrier()")


@pytest.fixture
def program(tmp_path: Path):
    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_json_keeps_its_schema_and_names_the_line(whichrank, program):
    done = whichrank("lint", program(GUARDED), "--format", "json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schemas()["lint"].read_text()))
    (found,) = document["findings"]
    assert done.returncode == 1
    assert (found["code"], found["cause"]) == ("LINT101", "rank0-only-collective")
    assert (found["evidence"][0]["source"], found["evidence"][0]["locator"]) == ("train.py", "line 6")
    assert found["evidence"][1]["locator"] == "line 4"
    assert "LINT101" in document["coverage"]["rules"]["found"]
    assert "LINT114" in document["coverage"]["rules"]["clear"]


def test_a_clean_program_is_said_to_be_clean(whichrank, program):
    done = whichrank("lint", program(RIGHT))
    assert (done.returncode, done.stdout) == (0, "No findings in 1 file.\n")


def test_text_shows_the_lines_and_the_fix(whichrank, program):
    done = whichrank("lint", program(GUARDED))
    assert "error[LINT101]: Only one rank will call barrier under `dist.get_rank() == 0`" in done.stdout
    assert " > 6 |     dist.barrier()" in done.stdout
    assert "= fix: Move barrier out of the condition" in done.stdout


@pytest.mark.parametrize(
    ("comment", "where", "code"),
    [
        ("# whichrank: ignore[LINT101] rank 0 alone is in this group", "same", 0),
        ("# whichrank: ignore[LINT101] rank 0 alone is in this group", "above", 0),
        ("# whichrank: ignore[LINT114] another rule", "same", 1),
        ("# whichrank: ignore everything here", "same", 0),
    ],
)
def test_a_comment_accepts_a_finding(whichrank, program, comment, where, code):
    line = "    dist.barrier()"
    marked = f"{line}  {comment}" if where == "same" else f"    {comment}\n{line}"
    done = whichrank("lint", program(GUARDED.replace(line, marked)), "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == code
    assert len(document["suppressed"]) == 1 - code


def test_rules_are_selected_and_ignored_by_the_beginning_of_their_codes(whichrank, program):
    path = program(GUARDED)
    assert whichrank("lint", path, "--ignore", "LINT101").returncode == 0
    assert whichrank("lint", path, "--select", "LINT2").returncode == 0
    assert whichrank("lint", path, "--select", "lint1,LINT2").returncode == 1
    wrong = whichrank("lint", path, "--select", "LINT9")
    assert wrong.returncode == 2
    assert "no rule has a code like 'LINT9'" in wrong.stderr


def test_usage_and_unreadable_files(whichrank, program, tmp_path):
    assert whichrank("lint", tmp_path / "nothing.py").returncode == 2
    done = whichrank("lint", program("def broken(:\n"))
    assert done.returncode == 3
    assert "not Python that can be parsed: SyntaxError on line 1" in done.stdout


def test_a_folder_is_one_project_and_calls_are_followed(whichrank, program, tmp_path):
    program("", "pkg/__init__.py")
    program("import torch.distributed as dist\n\ndef meet():\n    dist.barrier()\n", "pkg/sync.py")
    program("from pkg.sync import meet\n\n\ndef save(rank):\n    if rank == 0:\n        meet()\n", "pkg/train.py")
    done = whichrank("lint", tmp_path / "pkg", "--format", "json")
    (found,) = json.loads(done.stdout)["findings"]
    places = [(ref["source"], ref["locator"]) for ref in found["evidence"]]
    assert places[:3] == [("sync.py", "line 4"), ("train.py", "line 6"), ("train.py", "line 5")]


def test_what_reading_cannot_follow_is_listed(whichrank, program):
    text = "import importlib\nimport torch.distributed as dist\nexec('x = 1')\ndist.all_reduce = print\n"
    text += "importlib.import_module('plugin')\n"
    document = json.loads(whichrank("lint", program(text), "--format", "json").stdout)
    (source,) = document["coverage"]["sources"]
    assert source["quality"] == "partial"
    for words in ("exec() on line 3", "dist.all_reduce is replaced on line 4", "import_module() on line 5"):
        assert words in source["note"]


def test_sarif_has_the_place_and_the_path(whichrank, program, tmp_path):
    out = tmp_path / "lint.sarif"
    assert whichrank("lint", program(GUARDED), "--output", out).returncode == 1
    document = json.loads(out.read_text())
    (run,) = document["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (document["version"], result["ruleId"], result["level"]) == ("2.1.0", "LINT101", "error")
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 6)
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 4
    assert "LINT101" in {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_diff_is_a_patch_and_fix_makes_it(whichrank, program):
    pytest.importorskip("libcst")
    path = program(GUARDED)
    shown = whichrank("lint", path, "--diff")
    assert "-    dist.barrier()\n+dist.barrier()\n" in shown.stdout
    assert path.read_text() == GUARDED
    done = whichrank("lint", path, "--fix")
    assert (done.returncode, path.read_text()) == (0, RIGHT)
    assert whichrank("lint", path).returncode == 0


def test_hostile_files_cost_no_more_than_themselves(whichrank, program):
    program("x = " + "(" * 3000 + ")" * 3000, "deep.py")
    program("x = " + "+".join(["1"] * 20000) + "\n", "long.py")
    program("y = 10 ** 10 ** 10\nz = 'a' * 10 ** 12\nfor i in range(10 ** 18):\n    pass\n", "big.py")
    program(b"\xff\xfe\x00".decode("latin-1"), "bytes.py")
    path = program(GUARDED)
    document = json.loads(whichrank("lint", path.parent, "--format", "json").stdout)
    assert [found["code"] for found in document["findings"]] == ["LINT101"]
    assert len(document["coverage"]["sources"]) == 5
