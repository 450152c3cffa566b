"""Formats other than shell: what they set, how damaged and hostile files are read, what is said to be unread."""

import pytest

from tests import cost
from whichrank.facts.variables.releases import Release, release_in, said_in
from whichrank.flows.env.lint import lint, read_path
from whichrank.source import launch


def read(name, text):
    return launch.read(text.encode(), name)


def values(file):
    return {a.name: a.value for a in file.assignments if a.how != "build"}


def test_a_unit_splits_at_blanks_and_keeps_specifiers():
    file = read(
        "a.service", "[Service]\nEnvironment=A=1 'B=x y' \"C=2\"\nEnvironment=D=%i E=50%%\nExecStart=/bin/true\n"
    )
    assert values(file) == {"A": "1", "B": "x y", "C": "2", "D": None, "E": "50%"}


def test_a_makefile_takes_values_as_they_stand():
    file = read("Makefile", "export A := x # c\nB = 1\nexport B\nC = 2\nall:\n\tD=3 torchrun t.py\n")
    assert {a.name: (a.value, a.how) for a in file.assignments} == {
        "A": ("x", "export"), "B": ("1", "export"), "C": ("2", "local"), "D": ("3", "export"),
    }  # fmt: skip


def test_only_the_stages_of_the_image_count():
    text = "FROM a AS x\nENV A=1\nFROM b AS base\nENV B=1\nFROM base\nENV C=1\nENV C=2\n"
    assert values(read("Dockerfile", text)) == {"B": "1", "C": "2"}


def test_anchors_merges_and_templates():
    text = (
        "services:\n  a:\n    environment: &e {NCCL_ALGO: Ring}\n"
        "  b:\n    environment:\n      <<: *e\n      NCCL_PROTO: '{{ x }}'\n"
    )
    assert values(read("a.yml", text)) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": None}


def test_json_with_comments():
    text = '{\n  // c\n  "env_vars": {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "1"}\n}\n'
    file = read("runtime_env.json", text)
    assert [(a.name, a.ref.locator) for a in file.assignments] == [("NCCL_DEBUG", "line 3"), ("NCCL_TIMEOUT", "line 3")]


def test_a_manifest_that_breaks_off_is_read_up_to_there():
    file = read("a.yaml", "env:\n  NCCL_DEBUG: INFO\n  b: [1, 2\nc: d\n")
    assert file.note
    assert not file.unread


@pytest.mark.parametrize("name", ["job.nomad", "main.tf", "a.toml", "run.nu", "notes", "train.ipynb"])
def test_what_is_not_read_is_not_clean(name):
    file = read(name, 'job "x" { env { NCCL_TIMEOUT = "3" } }\n')
    result = lint([file])
    assert file.unread
    assert result.unread
    assert [s.quality for s in result.coverage.sources] == ["unusable"]


def test_a_python_program_that_does_not_parse_is_unread():
    assert read("a.py", "import (\n").unread


def test_sourced_files_are_followed(tmp_path):
    (tmp_path / "run.sh").write_text("source ./a.env\nset -a\n. ./b.env\nset +a\ntorchrun t.py\n")
    (tmp_path / "a.env").write_text("NCCL_DEBUG=WARN\n")
    (tmp_path / "b.env").write_text("NCCL_CROSS_NIC=1\n")
    found = lint(read_path(tmp_path)).findings
    assert [(f.code, f.evidence[0].source.rpartition("/")[2]) for f in found] == [("ENV117", "a.env")]


def test_nothing_outside_the_folder_is_followed(tmp_path):
    (tmp_path / "x.env").write_text("NCCL_DEBUG=WARN\n")
    inner = tmp_path / "in"
    inner.mkdir()
    (inner / "run.sh").write_text("source ../x.env\ntorchrun t.py\n")
    assert lint(read_path(inner)).findings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:24.07-py3", Release((2, 4, 0), (2, 22, 3))),
        ("pip install torch==2.6.0 x", Release((2, 6, 0), (2, 21, 5))),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", Release((2, 5, 1), (2, 21, 5))),
        ("module load nccl/2.18.3 pytorch/2.2.0", Release((2, 2, 0), (2, 18, 3))),
        ("registry/x:25.10-torch2.9-nccl2.27.5", Release((2, 9), (2, 27, 5))),
        ("pip install torch>=2.1", Release()),
        ("registry.example.org/asr:7.3", Release()),
    ],
)
def test_versions_by_tags_and_pins(text, expected):
    assert release_in(text) == expected


def test_versions_by_comments():
    assert said_in(["torch 2.7 in this image"]).torch == (2, 7)
    assert said_in(["needs torch 2.8", "since NCCL 2.24"]) == Release()
    assert said_in(["torch 2.7", "torch 2.8"]) == Release()


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", BOMB),
        ("a.yaml", "[" * 50_000),
        ("a.yaml", "a:\n" * 20_000),
        ("a.yaml", "x: &x {<<: *x}\n"),
        ("a.json", "{" * 20_000),
        ("Makefile", "a=$(" * 20_000),
        ("a.service", "Environment=" + "\\\n" * 50_000),
        ("Dockerfile", "FROM a\nRUN " + "\\\n" * 50_000),
        ("a.py", "(" * 5_000),
        ("a.sh", "for x in a b; do " * 2_000),
        ("a.sh", "f() { f; f; }; f\n" * 500),
        ("a.sh", "bash -c '" * 1_000),
        (".env", "A=" * 100_000),
    ],
)
def test_hostile_text_takes_no_time(name, text):
    with cost.at_most(5):
        read(name, text)
