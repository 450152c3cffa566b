"""What a shell script sets, and what it only mentions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import cost
from whichrank.source import launch, shell
from whichrank.source.shell import words


def seen(text):
    return [(a.name, a.value, a.how, a.ref.locator) for a in shell.read(text, "a.sh").assignments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export A=1", ("A", "1", "export")),
        ("export A='x y' # B=2", ("A", "x y", "export")),
        ('export A="x # y"', ("A", "x # y", "export")),
        ("A=1 python t.py", ("A", "1", "export")),
        ("A=1", ("A", "1", "local")),
        ("A=1\nexport A", ("A", "1", "export")),
        ("set -a\nA=1", ("A", "1", "export")),
        ("declare -x A=1", ("A", "1", "export")),
        ("local A=1", ("A", "1", "local")),
        ("setenv A 1", ("A", "1", "export")),
        ("env A=1 python t.py", ("A", "1", "export")),
        ("export A=${B:-7}", ("A", "7", "export")),
        ("export A=$B", ("A", None, "export")),
        ("export A=$(date)", ("A", None, "export")),
        ("mpirun -x A=1 python", ("A", "1", "export")),
        ("mpiexec -genv A 1 python", ("A", "1", "export")),
        ("docker run -eA=1 image", ("A", "1", "export")),
        ('docker run --env="A=1" image', ("A", "1", "export")),
        ("kubectl set env --env A=1", ("A", "1", "export")),
        ("srun --export=ALL,A=1 x", ("A", "1", "export")),
        ("srun --export ALL,A=1 x", ("A", "1", "export")),
        ("#SBATCH --export=ALL,A=1", ("A", "1", "export")),
        ("#PBS -v A=1", ("A", "1", "export")),
        ("bash -c 'export A=1; python t.py'", ("A", "1", "export")),
        ('sbatch --wrap="A=1 srun x"', ("A", "1", "export")),
        ("if true; then export A=1; fi", ("A", "1", "export")),
        ("export SINGULARITYENV_A=1", ("A", "1", "export")),
        ("cat > job.env <<EOF\nA=1\nEOF", ("A", "1", "export")),
        ("ssh host <<'EOF'\nexport A=1\nEOF", ("A", "1", "export")),
        ("echo A=1 >> /etc/nccl.conf", ("A", "1", "conf")),
    ],
)
def test_ways_to_set(text, expected):
    assert expected in [entry[:3] for entry in seen(text)]


@pytest.mark.parametrize("text", ["echo A=1", "# export A=1", "make A=1", "grep A=1 file", "python t.py model.a=1",
                                  'printf "A=1"', "[ A=1 ]", "test x"])  # fmt: skip
def test_what_sets_nothing(text):
    assert not [entry for entry in seen(text) if entry[0] == "A"]


def test_lines_survive_continuations_quotes_and_documents():
    text = 'x \\\n  --y\nexport A=1\nbash -c "\n  export B=2\n"\ncat <<EOF > f.txt\nit\'s\nEOF\nexport C=3\n'
    assert [(name, line) for name, _, _, line in seen(text)] == [("A", "line 3"), ("B", "line 5"), ("C", "line 10")]


def test_branches_are_not_sure():
    file = shell.read("export A=1\nif x; then\n export B=1\nfi\n[ -e x ] && export C=1\nexport D=1\n", "a.sh")
    assert {a.name: a.sure for a in file.assignments} == {"A": True, "B": False, "C": False, "D": True}


@pytest.mark.parametrize("text", ['"' * 20_001, "'" * 20_001, "\\" * 200_001, "A=" * 50_000, "<<E" * 20_000,
                                  "export A=" + "${" * 30_000, "$(" * 50_000, "a" * 1_000_000])  # fmt: skip
def test_hostile_text_takes_no_time(text):
    with cost.at_most(3):
        launch.read(text.encode(), "a.sh")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(sorted(launch.KINDS)))
def test_anything_can_be_read(data, kind):
    file = launch.read(data, "x", kind)
    assert all(a.ref.locator for a in file.assignments)


@pytest.mark.parametrize(
    "script",
    [
        "A=xxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 60 + "torchrun $A$A$A train.py\n",
        "A=xxxxxxxx\n" + "A+=$A$A$A$A\n" * 60 + "torchrun $A train.py\n",
        "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60 + 'torchrun "${A[@]}" train.py\n',
        'A=("${B[@]}")\nB=("${A[@]}")\nA=("${B[@]}")\ntorchrun "${A[@]}" train.py\n',
        "A=${X:-" * 1500 + "1" + "}" * 1500 + "\ntorchrun $A train.py\n",
    ],
    ids=["doubled", "appended", "array of itself", "arrays of each other", "nested"],
)
def test_scripts_that_grow_without_end_are_bounded(script):
    with cost.at_most(15):
        read = launch.read(script.encode(), "launch.sh")
    assert all(len(assignment.value or "") <= words.LONGEST for assignment in read.assignments)


def test_an_array_may_be_made_of_its_own_elements():
    read = launch.read(
        b'A=(--nnodes 2)\nA=("${A[@]}" --nproc_per_node=8)\nexport NCCL_DEBUG=INFO\ntorchrun "${A[@]}" train.py\n',
        "launch.sh",
    )
    assert [assignment.name for assignment in read.assignments] == ["NCCL_DEBUG"]
    assert not read.unread
