"""A frozen set counts as blind once."""

from __future__ import annotations

import json

from click.testing import CliRunner

from whichrank.cli.tools.drill import command
from whichrank.lab import blind


def case(folder, name, text, truth):
    (folder / name).mkdir(parents=True)
    (folder / name / "train.log").write_text(text)
    (folder / name / "truth.yaml").write_text(truth)


def test_the_second_scoring_is_marked_as_used(tmp_path):
    frozen = tmp_path / "round"
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    case(frozen, "a", oom, "category: crash\ncause: gpu-out-of-memory\nculprit_ranks: [3]\n")
    case(frozen, "b", oom, "category: hang\ncause: uneven-inputs\nculprit_ranks: [1]\nculprit_hosts: [n7]\n")

    def run():
        answer = CliRunner().invoke(command, ["score", "--blind", str(frozen), "--quiet", "--format", "json"])
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.output)

    first, second = run(), run()
    assert (first["use"], second["use"]) == ("blind", "used")
    assert first["totals"] == {"cases": 2, "right": 1, "listed": 1, "category": 1, "exact": 1, "accused": 1,
                               "confident_error": 1}  # fmt: skip
    assert [miss["case"] for miss in first["misses"]] == ["b"]
    (frozen / "b" / "truth.yaml").write_text("category: crash\ncause: gpu-out-of-memory\nculprit_ranks: [3]\n")
    third = run()
    assert third["use"] == "used"
    assert third["sha256"] != first["sha256"]
    assert len((tmp_path / "round.scores.jsonl").read_text().splitlines()) == 3


def test_the_hash_sees_names_and_bytes(tmp_path):
    (tmp_path / "a").write_text("x")
    first = blind.digest_of(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert blind.digest_of(tmp_path) != first


def test_a_folder_without_cases_is_refused(tmp_path):
    answer = CliRunner().invoke(command, ["score", "--blind", str(tmp_path)])
    assert answer.exit_code != 0
