"""What is quoted in a document, and what is its author's own."""

from __future__ import annotations

import pytest

from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.quotations import Quotations
from whichrank.flows.diagnose.pipeline import diagnose


def quoted(text):
    data = text.encode()
    return sorted(Quotations().lines(Chunk(bytearray(data + bytes(PADDING)), len(data), 0, 1)))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("we see\n```\nNCCL WARN x\n```\nand\n", [2]),
        ("> ~~~\n> NCCL WARN x\n> ~~~\n", [1]),
        ("{noformat}\nNCCL WARN x\n{noformat}\n", [1]),
        ("<pre>\nNCCL WARN x\n</pre>\nit fails\n", [1]),
        ("like this:\n\n    NCCL WARN x\n", [2]),
        ("I get\nnode1:7:9 [0] misc/socket.cc:50 NCCL WARN x\nfor an hour\n", [1]),
        ("`[0] NCCL WARN x\n[1] NCCL WARN y`\n", [0, 1]),
        ("and then\n[rank3]: RuntimeError: x\n2025-01-01 10:00:00 step 3\n", [1, 2]),
        ("Traceback is what I get\nThe RuntimeError: is new\n", []),
        ("`NCCL WARN x` is what it says\n", []),
    ],
)
def test_what_is_quoted(text, lines):
    assert quoted(text) == lines


def test_what_a_ticket_quotes_was_printed(tmp_path):
    said = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
    (tmp_path / "ticket.md").write_text(f"Jobs die at once since the update:\n\n```\n[rank8]: {said}\n```\n")
    assert diagnose([tmp_path], jobs=1).verdict.cause == "fabric-manager"
