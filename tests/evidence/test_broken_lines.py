"""Lines that a terminal broke, and tensors that torch printed row by row."""

from __future__ import annotations

from whichrank.evidence.broken_lines import joined

LONG = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running inconsistent collective: "
    "CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[{0}1, 256, 8], TensorDtypes=Float)"
)


def broken(line: str, width: int) -> str:
    return "\n".join(line[at : at + width] for at in range(0, len(line), width))


def test_broken_lines_are_joined_where_they_began():
    pasted = f"NCCL error\n{broken(LONG.format(0), 70)}\n{broken(LONG.format(1), 70)}\nthe end"
    lines = joined(pasted.encode()).decode().split("\n")
    assert len(lines) == len(pasted.split("\n"))
    assert [line for line in lines if line] == ["NCCL error", LONG.format(0), LONG.format(1), "the end"]


def test_lines_that_happen_to_be_of_one_length_stay():
    rows = "\n".join(
        f"worker {n} of the job has come to the barrier of step {n * 100:6d} and waits there" for n in range(4)
    )
    assert joined(rows.encode()) == rows.encode()


def test_sentences_stay():
    text = f"{'a' * 79}.\nNext one\n{'b' * 79}.\nLast one"
    assert joined(text.encode()) == text.encode()


def test_a_printed_tensor_stands_on_one_line():
    rows = (
        "tensor([[[ 0.0000,  0.0000],\n         [ 1.5000, -0.7447]]], device='cuda:0',\n       dtype=torch.half)\nnext"
    )
    assert joined(rows.encode()).decode() == "tensor([1.5000, -0.7447], device='cuda:0')\n\n\nnext"


def test_headings_that_are_repeated_stay():
    table = (
        f"{'index, pci.bus_id, name, pcie.link.width.current, ':<70}name\n0, 05:00.0, L40S, 16\n1, 06:00.0, L40S, 16\n"
    )
    assert joined((table * 2).encode()) == (table * 2).encode()
