"""Several files in one paste become files again, each line at its place."""

from pathlib import Path

import pytest

from whichrank.evidence.intake import collect

KERNEL = "[  101.5] NVRM: Xid (PCI:0000:b1:00): 79, GPU has fallen off the bus."
ERROR = "RuntimeError: CUDA error: unspecified launch failure"
COLONS = ":" * 14

PASTED = {
    "tail": f"==> dmesg_oak7.txt <==\n{KERNEL}\n\n==> logs/rank3.err <==\n{ERROR}\n",
    "rules": f"===== dmesg_oak7.txt =====\n{KERNEL}\n\n===== logs/rank3.err =====\n{ERROR}\n",
    "more": f"{COLONS}\ndmesg_oak7.txt\n{COLONS}\n{KERNEL}\n{COLONS}\nlogs/rank3.err\n{COLONS}\n{ERROR}\n",
    "fences": f"Help!\n\n### dmesg_oak7.txt\n```\n{KERNEL}\n```\n**logs/rank3.err**:\n\n~~~\n{ERROR}\n~~~\nThanks\n",
}


def _parts(folder: Path, text: str, name: str = "ticket.txt") -> dict[str, list[str]]:
    (folder / name).write_text(text)
    with collect([folder / name]) as intake:
        return {item.label: item.read().decode().split("\n") for item in intake.items}


@pytest.mark.parametrize("how", PASTED)
def test_each_file_is_found_below_its_name(how: str, tmp_path: Path) -> None:
    text = PASTED[how]
    parts = _parts(tmp_path, text)
    lines = text.split("\n")
    for label, line in (("ticket.txt/dmesg_oak7.txt", KERNEL), ("ticket.txt/logs/rank3.err", ERROR)):
        assert [found for found in parts[label] if found] == [line]
        assert parts[label].index(line) == lines.index(line)


def test_what_stands_around_fences_stays_a_document(tmp_path: Path) -> None:
    document = _parts(tmp_path, PASTED["fences"])["ticket.txt"]
    assert [line for line in document if line][0::6] == ["Help!", "~~~"]
    assert KERNEL not in document
    assert "Thanks" in document


@pytest.mark.parametrize(
    "text",
    [
        "==> rank3.err <==\nstep 1\nstep 2\n",
        "### what I did\n```\ntorchrun train.py\n```\nthen train.py: it stopped\n```\nstep 1\n```\n",
        "==== phase 1 ====\nstep 1\n==== phase 2 ====\nstep 2\n",
        "==> node7 <==\nstep 1\n==> node8 <==\nstep 1\n",
        "==> logs/ca-1.log <==\nstep 1\n==> logs/ca-2.log <==\nstep 1\n",
    ],
)
def test_a_text_of_one_file_stays_whole(text: str, tmp_path: Path) -> None:
    assert list(_parts(tmp_path, text)) == ["ticket.txt"]
