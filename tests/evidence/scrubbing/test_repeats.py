"""Lines that come again: the copy is the same as if each had been looked at by itself."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from whichrank.evidence.scrubbing.repeats import Shapes
from whichrank.evidence.scrubbing.voices import Listening, Replacing
from whichrank.facts.redaction.names import Names
from whichrank.facts.redaction.redactor import Blocks, Learner, Redactor

KEY = b"k" * 32
LINES = (
    "quartz-gpu17:{n}:{m} [3] NCCL INFO AllReduce: opCount {x} sendbuff 0x{h} count {n} datatype 7",
    "{{'loss': {f}, 'grad_norm': {f}, 'epoch': {f}}}",
    " [2026-05-01 08:00:{s}] iteration {n}/ 500000 | loss: {f} | lr: 2.9E-04 |",
    "Train:  45%|####    | {n}/90000 [00:{s}<04:10, 3.99it/s]",
    "2026-05-01 08:00:{s},123 - INFO - loaded /home/jtanaka/shards/part-{n}.tar from 10.3.{o}.{o}",
    "connect to 10.7.{o}.{o}:29500 failed after {n} ms",
    "pid {n} on host quartz-gpu17 uses {n} MiB",
    "uid={n} started {n}",
    "password: {n}",
    "the token is {n}",
    "name: DB_PASSWORD",
    "value: {n}",
    "mysql -u root -p {n} -h db",
    "call +49 171 {n}",
    "link/ether 00:11:22:33:44:{s}",
    "Serial Number : {n}",
)


def made(dice: random.Random, count: int) -> str:
    def line() -> str:
        numbers = {"n": dice.randrange(10**6, 10**7), "m": dice.randrange(99999), "f": round(dice.random(), 4)}
        odd = {"h": f"{dice.randrange(16**12):012x}", "x": f"{dice.randrange(999):x}", "s": f"{dice.randrange(60):02d}"}
        return dice.choice(LINES).format(**numbers, **odd, o=dice.randrange(1, 250))

    return "\n".join(line() for _ in range(count)) + "\n"


def learned(text: str, *, plain: bool) -> Names:
    names = Names()
    (Learner(names) if plain else Listening(names)).text(text)
    names.close()
    return names


@pytest.mark.parametrize("seed", range(4))
def test_the_copy_is_as_without_it(seed):
    text = made(random.Random(seed), 400)
    plain, quick = learned(text, plain=True), learned(text, plain=False)
    assert (plain.hosts, plain.users, plain.spread) == (quick.hosts, quick.users, quick.spread)
    slow, fast = Redactor(plain, KEY), Redactor(quick, KEY)
    expected = Blocks(slow).text(text)
    assert Replacing(quick, fast).text(text) == expected
    assert "10.7." not in expected
    assert fast.counts == slow.counts


def test_most_lines_are_looked_at_once():
    asked = []

    def redact(text: str) -> str:
        asked.append(text)
        return text

    text = "\n".join(f"step {n} loss {n / 7:.4f}" for n in range(1000, 9000))
    assert Shapes().rewritten(text, redact, Counter()) == text
    assert sum(map(len, asked)) < len(text) / 50


def test_a_known_secret_goes_also_where_it_is_a_number():
    text = "password=48291377\n" + "".join(f"code {n} done\n" for n in range(48291300, 48291400))
    names = learned(text, plain=False)
    assert "48291377" not in Replacing(names, Redactor(names, KEY)).text(text)


def test_what_follows_the_name_of_a_secret_is_looked_at():
    text = "".join(f"value: {n}\n" for n in range(100000, 100020)) + "name: DB_PASSWORD\nvalue: 734512\n"
    names = learned(text, plain=False)
    assert "734512" not in Replacing(names, Redactor(names, KEY)).text(text)
