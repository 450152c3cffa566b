"""A log's own prefixes: learned from its lines, and those of collectors."""

from __future__ import annotations

import pytest

from whichrank.evidence.text.own_prefix import learn
from whichrank.evidence.text.prefixes import Clock, clock_of, listen
from whichrank.model.contracts import Item


@pytest.mark.parametrize(
    ("lines", "line", "rank"),
    [
        ("[0] rank 0 ready\n[9] rank 9 ready\n", "[9] Exception in thread prefetch-0:", 9),
        ("[c7:3] [rank3]: x\n[c8:11] [rank11]: y\n", "[c8:11] WARNING cache.py:88 disk full", 11),
        ("0|data|INFO|rank 0: 1024 batches\n5|data|INFO|rank 5: 1011 batches\n", "5|train|INFO|epoch 0 finished", 5),
    ],
)
def test_a_prefix_is_learned_from_lines_that_say_their_rank(tmp_path, lines, line, rank):
    path = tmp_path / "job.log"
    path.write_text(lines)
    voice = listen(line.encode(), clock_of(Item(path, "job.log", path.stat().st_size, 0)))
    assert voice.rank == rank


@pytest.mark.parametrize(
    "lines",
    [
        "[0] rank 0 ready\n[1] rank 5 ready\n[2] rank 2 ready\n",  # a local rank, or a thread
        "[3] rank 3 ready\n[4] step 10\n",  # one is not enough
        "[1] loading\n[2] loading\n",
    ],
)
def test_what_does_not_agree_is_not_learned(lines):
    assert learn(lines.encode()) is None


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ('{"log": "[rank3]: ValueError: bad batch\\n", "stream": "stderr", "time": "x"}', 3, "ValueError: bad batch"),
        ('{"level": "error", "rank": 2, "message": "CUDA error: device-side x"}', 2, "CUDA error: device-side x"),
        ('{"log":"[rank1]: NCCL error: remote process exited or th', 1, "NCCL error: remote process exited or th"),
        ('2026-02-20T15:33:11.120Z,trainer-6,stderr,"[rank6]: torch.SomeError: x"', 6, "torch.SomeError: x"),
        ("[10:05:02] ERROR    rank 3: torch.OutOfMemoryError: y", 3, "torch.OutOfMemoryError: y"),
    ],
)  # fmt: skip
def test_collectors_are_unwrapped(line, rank, text):
    voice = listen(line.encode(), Clock(2_000_000_000_000_000_000))
    assert (voice.rank, voice.text.strip()) == (rank, text)


def test_short_words_stay_with_their_values():
    voice = listen(b'{"msg": "step", "rank": 0, "step": 100, "loss": 3.6}', Clock(0))
    assert '"step": 100' in voice.text
