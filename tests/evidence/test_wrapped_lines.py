"""Logs that reach us coloured, indented, quoted or in a container runtime's JSON are read as what they were."""

import json
from pathlib import Path

import pytest

from whichrank.evidence.intake import collect
from whichrank.flows.diagnose.pipeline import diagnose

LOG = """\
trainer starts on 2 nodes: elm-1 ranks 0-3, elm-2 ranks 4-7
[rank0] step 10 loss 2.31
[rank0] step 20 loss 2.20

[rank6]: Traceback (most recent call last):
[rank6]:   File "/app/train.py", line 41, in step
[rank6]:     loss = criterion(model(batch), labels)
[rank6]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.10 GiB
"""


def _lines(path: Path) -> list[str]:
    with collect([path]) as intake:
        return intake.items[0].read().decode().split("\n")


def _docker(log: str) -> str:
    stamp = "2026-03-05T04:05:06.123456789Z"
    return "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": stamp}) + "\n" for line in log.splitlines()
    )


WRAPPED = {
    "indented": "".join(f"    {line}\n" for line in LOG.splitlines()),
    "quoted": "".join(f"> {line}\n" for line in LOG.splitlines()),
    "quoted twice": "".join(f">> {line}\n" for line in LOG.splitlines()),
    "coloured": LOG.replace("[rank6]", "\x1b[31m[rank6]\x1b[0m"),
    "of docker": _docker(LOG),
}


@pytest.mark.parametrize("how", WRAPPED)
def test_the_verdict_is_that_of_the_plain_log(how: str, tmp_path: Path) -> None:
    plain, wrapped = tmp_path / "plain" / "job.log", tmp_path / "wrapped" / "job.log"
    for path, text in ((plain, LOG), (wrapped, WRAPPED[how])):
        path.parent.mkdir()
        path.write_text(text)
    expected, verdict = diagnose([plain]).verdict, diagnose([wrapped]).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("gpu-out-of-memory", (6,))
    assert (verdict.cause, verdict.culprits) == (expected.cause, expected.culprits)


@pytest.mark.parametrize("how", ["indented", "quoted", "coloured"])
def test_lines_stay_at_their_places(how: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(WRAPPED[how])
    assert [line.strip() for line in _lines(path)] == [line.strip() for line in LOG.split("\n")]


def test_the_time_of_a_container_runtime_stays_before_the_words(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(WRAPPED["of docker"])
    assert _lines(path)[1] == "2026-03-05T04:05:06.123456789Z [rank0] step 10 loss 2.31"


def test_indentation_that_only_some_lines_have_stays(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("  File one\n    two\nthree\n")
    assert _lines(path) == ["  File one", "    two", "three", ""]


def test_other_json_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    text = "".join(json.dumps({"step": step, "loss": 2.0}) + "\n" for step in range(5))
    path.write_text(text)
    assert "\n".join(_lines(path)) == text


def test_a_transcript_that_quotes_a_little_stays(tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    text = "> did you look at the log?\nYes:\nstep 1\nstep 2\nstep 3\n"
    path.write_text(text)
    assert "\n".join(_lines(path)) == text


KERNEL = "2026-11-15T02:36:10.250000+00:00 node8 kernel: pcieport 0000:16:00.0: PCIe Bus Error: severity=Fatal\n"
TWICE = "2026-11-15T02:36:10.250000000Z 02:36:09 step {0} loss 2.1\n"


def test_the_only_time_of_a_line_stays(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text(KERNEL * 4)
    assert _lines(path)[0] == KERNEL.rstrip()


def test_of_two_times_that_of_the_program_stays(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(TWICE.format(step) for step in range(4)))
    assert _lines(path)[0] == "02:36:09 step 0 loss 2.1"
