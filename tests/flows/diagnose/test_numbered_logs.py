"""Logs of ranks that a program numbers or tags in a way of its own."""

from __future__ import annotations

from pathlib import Path

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder, files)], jobs=1).verdict


def states(odd: int | None) -> dict[int, str]:
    """What each of four ranks writes of its weights; one leaves the others after step 40."""
    told = {}
    for n in range(4):
        sums = ["56591c1d61", "9ccd247e50", "433a549b56", "34a940caf9" if n == odd else "157f8602ac"]
        told[n] = "".join(
            f"    {3 + at}.365 state  n={20 * at} wnorm=208.6 sha={digest}\n    {3 + at}.6 step n={20 * at} loss=2.1\n"
            for at, digest in enumerate(sums)
        )
    return told


def test_files_that_count_from_zero_are_of_the_ranks(tmp_path):
    found = verdict(tmp_path, {f"ner.{n}.log": text for n, text in states(2).items()})
    assert (found.category, found.cause, found.culprits.ranks) == ("corruption", "replica-divergence", (2,))


def test_files_of_nodes_or_attempts_or_with_a_gap_are_not(tmp_path):
    for name in ("node-{}.log", "attempt.{}.log"):
        assert (
            verdict(tmp_path / name[:4], {name.format(n): text for n, text in states(2).items()}).culprits.ranks == ()
        )
    gap = {f"ner.{n + (n > 1)}.log": text for n, text in states(2).items()}
    assert verdict(tmp_path / "gap", gap).culprits.ranks == ()


def test_steps_told_part_by_part_behind_a_tag(tmp_path):
    lines = []
    for step in range(40):
        for n in range(4):
            work, wait = (92.4, 8.1) if n == 3 else (26.1 + n, 74.0 - n)
            parts = f"load   0.1 fwdbwd   {work} sync   {wait} opt   7.2 total  {work + wait + 7.3:.1f} ms"
            lines.append(f"[17:34:{step:02}] rk{n} it  {3 * step:3}/120 loss 7.7{step:02} | {parts}\n")
    found = verdict(tmp_path, {"slurm-88213.out": "".join(lines) + "done. 8.26 it/s at the end\n"})
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "straggler", (3,))


def test_files_that_say_how_many_there_are(tmp_path):
    files = {f"part-0000{n}-of-00004.trace": text for n, text in states(2).items()}
    assert verdict(tmp_path / "all", files).culprits.ranks == (2,)
    assert verdict(tmp_path / "some", dict(list(files.items())[1:])).culprits.ranks == ()
