"""Real rehearsals of small programs with one mistake each, or none: the cause, a line of it, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.rehearse.generated import rehearse_all
from whichrank import report
from whichrank.rehearse.rehearse import Options, Outcome, rehearse

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
QUICK = ("healthy_join",)
SCHEMA = Path(report.__file__).parent / "schemas" / "rehearse.schema.json"


SECOND = Path(__file__).parents[1] / "samples" / "rehearse" / "second.txt"


def packed(file: Path) -> Iterator[tuple[str, str, str]]:
    """Programs below lines `=== name causes`; healthy ones have no causes."""
    parts = re.split(r"^=== (\S+)(?: (\S+))?\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name, causes, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        yield name, causes or "", text


def check(path: Path, world: int = 4) -> Outcome:
    text = path.read_text(encoding="utf-8")
    truth = re.search(r"# truth: (\S+) accept ?(.*)", text)
    assert truth is not None
    lines = {f"line {number}" for number, line in enumerate(text.splitlines(), 1) if "# LINE" in line}
    outcome = rehearse(Options(path, world=world, explorations=0))
    causes = [finding.cause for finding in outcome.findings]
    assert outcome.rehearsed, outcome.reason
    if truth[1] == "healthy":
        assert not causes
    else:
        assert causes[:1] in [[cause] for cause in (truth[1], *truth[2].split())], causes
        assert lines & {ref.locator for ref in outcome.findings[0].evidence}
    return outcome


@pytest.mark.job
@pytest.mark.parametrize("name", QUICK)
def test_programs(name):
    check(PROGRAMS / f"{name}.py")


@pytest.mark.job
@pytest.mark.bars
@pytest.mark.parametrize("name", sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem not in QUICK))
def test_more_programs(name):
    check(PROGRAMS / f"{name}.py", world=8)


@pytest.mark.job
@pytest.mark.bars
@pytest.mark.parametrize(("name", "causes", "text"), list(packed(SECOND)), ids=lambda value: str(value)[:40])
def test_the_second_set(name, causes, text, tmp_path):
    script = tmp_path / name
    script.write_text(text)
    outcome = rehearse(Options(script, world=4, explorations=0))
    found = [finding.cause for finding in outcome.findings]
    assert outcome.rehearsed, outcome.reason
    if name == "nan_skip.py":
        # A step that was skipped looks like a loop that ended early: one call fewer, in the same loop.
        causes = "uneven-inputs"
    assert found[:1] == [] if not causes else found[0] in causes.split("|"), found


@pytest.mark.job
@pytest.mark.bars
def test_generated_classes():
    scores = rehearse_all()
    wrong = [score for score in scores if score.expected]
    right = [score for score in scores if not score.expected]
    assert sum(score.right for score in wrong) >= 0.9 * len(wrong), [s for s in wrong if not s.right]
    assert all(score.right for score in right), [s for s in right if not s.right]


SKIPS = """\
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
for step in range(5):
    dist.all_reduce(torch.ones(1, device="cuda"))
    if step == 3 and dist.get_rank() == 1:
        continue
    dist.barrier()
open("OUTSIDE", "w").write("x")
"""


@pytest.mark.job
def test_the_command_tells_both_sides_and_keeps_its_schema(whichrank, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SKIPS)
    done = whichrank("rehearse", "-n", "4", "--explore", "0", "--format", "json", script)
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert done.returncode == 1
    assert document["world_size"] == 4
    finding = document["findings"][0]
    assert (finding["cause"], finding["subject"]["ranks"]) == ("conditional-collective", [1])
    assert (finding["evidence"][0]["source"], finding["evidence"][0]["locator"]) == (str(script), "line 7")
    sides = {tuple(side["ranks"]): (side["op"], side["code"]["line"]) for side in document["divergence"]["sides"]}
    assert sides == {(0, 2, 3): ("barrier", 7), (1,): ("all_reduce", 4)}


SPAWNS = """\
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, world, word):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29501")
    dist.init_process_group("nccl", rank=rank, world_size=world)
    dist.all_reduce(torch.ones(3 if rank == 2 and word == "bad" else 2).cuda(rank))
    open("OUTSIDE", "w").write("x")
    dist.destroy_process_group()

if __name__ == "__main__":
    world = torch.cuda.device_count()
    mp.spawn(work, args=(world, sys.argv[1]), nprocs=world)
"""


@pytest.mark.job
@pytest.mark.parametrize(
    ("word", "causes"), [("bad", ["size-mismatch"]), pytest.param("good", [], marks=pytest.mark.bars)]
)
def test_scripts_that_spawn_their_ranks(tmp_path, word, causes):
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS.replace("OUTSIDE", str(tmp_path / "outside")))
    outcome = rehearse(Options(script, (word,), world=3, explorations=0))
    assert outcome.rehearsed, outcome.reason
    assert [finding.cause for finding in outcome.findings] == causes
    assert outcome.world == 3
    assert not (tmp_path / "outside").exists()


SWALLOWS = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
def measure(step):
    return 1.0 / (step + 1)
for step in range(6):
    try:
        value = torch.tensor(measure(step))
        dist.all_reduce(value)
    except Exception as error:
        print(error)
    dist.broadcast(torch.ones(1), 0)
"""


@pytest.mark.job
def test_an_error_on_one_rank_that_is_caught(tmp_path):
    script = tmp_path / "swallows.py"
    script.write_text(SWALLOWS)
    outcome = rehearse(Options(script, world=3))
    assert [(one.cause, one.severity) for one in outcome.findings] == [("conditional-collective", "warning")]
    assert outcome.findings[0].message.startswith("If an error in the `try` at swallows.py:6 strikes rank 2 alone")


NEEDS_NETWORK = """\
import urllib.request, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    urllib.request.urlopen("http://example.org/corpus.tar", timeout=5)
dist.barrier()
"""


@pytest.mark.job
def test_what_can_t_be_followed_is_said(tmp_path):
    script = tmp_path / "needs_network.py"
    script.write_text(NEEDS_NETWORK)
    outcome = rehearse(Options(script, world=2))
    assert not outcome.rehearsed
    assert not outcome.findings
    assert "URLError" in outcome.reason
    assert outcome.coverage.sources[0].quality == "unusable"


@pytest.mark.job
def test_without_namespaces_a_copy_is_used_and_writes_outside_are_refused(tmp_path, monkeypatch):
    left = noisy_library(tmp_path, monkeypatch)
    script = tmp_path / "job" / "writes.py"
    script.parent.mkdir()
    text = SKIPS.replace("step == 3", "step == 9").replace("OUTSIDE", str(tmp_path / "outside"))
    script.write_text("import noisy_library\n" + text)
    outcome = rehearse(Options(script, world=2, namespaces=False, explorations=0))
    assert not outcome.rehearsed
    assert "outside its scratch copy" in outcome.reason
    assert not (tmp_path / "outside").exists()
    assert not left.exists(), "what is imported can't write either"


def noisy_library(folder, monkeypatch):
    """A library that writes when it is imported, if it may; returns what it would leave behind."""
    site, left = folder / "site", folder / "left_behind"
    site.mkdir()
    (site / "noisy_library.py").write_text(f"try:\n    open({str(left)!r}, 'w')\nexcept PermissionError:\n    pass\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    return left


@pytest.mark.job
@pytest.mark.parametrize("namespaces", [True, pytest.param(False, marks=pytest.mark.bars)])
def test_what_is_imported_can_t_write_either(tmp_path, monkeypatch, namespaces):
    left = noisy_library(tmp_path, monkeypatch)
    script = tmp_path / "job" / "imports.py"
    script.parent.mkdir()
    script.write_text(
        "import noisy_library\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.barrier()\ndist.destroy_process_group()\n"
    )
    outcome = rehearse(Options(script, world=2, explorations=0, namespaces=namespaces))
    assert outcome.rehearsed, outcome.reason
    assert not outcome.findings
    assert not left.exists()
