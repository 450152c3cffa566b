"""`explain`: the likeliest reading first, all readings of an ambiguous word, and what is said and wrong."""

from __future__ import annotations

import pytest

from tests.each import over
from whichrank.facts.hardware.xids import all_xids
from whichrank.facts.messages import signatures
from whichrank.facts.taxonomy import causes
from whichrank.facts.variables.environment import names
from whichrank.flows.explain import explain, near, rules


@pytest.mark.parametrize(
    ("words", "kind", "name"),
    [
        ("xid 79", "xid", "79"),
        ("xid79", "xid", "79"),
        ("Xid 31", "xid", "31"),
        ("79", "xid", "79"),
        ("sxid 12028", "sxid", "12028"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=4410, Double Bit ECC Error", "xid", "48"),
        ("-9", "signal", "9"),
        ("137", "signal", "9"),
        ("exit code 139", "signal", "11"),
        ("SIGBUS", "signal", "7"),
        ("exit code 1", "exit_code", "1"),
        ("ncclRemoteError", "nccl_result", "6"),
        ("remote process exited or there was a network error", "nccl_result", "6"),
        ("IBV_WC_RETRY_EXC_ERR", "ibv_status", "12"),
        ("LOC_PROT_ERR", "ibv_status", "4"),
        ("status 12", "ibv_status", "12"),
        ("CUDA error 802", "cuda_error", "802"),
        ("an illegal memory access was encountered", "cuda_error", "700"),
        ("ecc-error", "cause", "ecc-error"),
        ("COLL101", "rule", "COLL101"),
        ("coll101", "rule", "COLL101"),
        ("LINT104", "rule", "LINT104"),
        ("SOFT205", "rule", "SOFT205"),
        ("NCCL_SOCKET_IFNAME", "variable", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNAME=eth0", "variable", "NCCL_SOCKET_IFNAME"),
        ("NCCL_TIMEOUT", "variable", "NCCL_TIMEOUT"),
        ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", "message", "nccl-duplicate-gpu"),
        ("duplicate gpu detected rank both on cuda device", "similar", "nccl-duplicate-gpu"),
    ],
)
def test_the_likeliest_reading_comes_first(words, kind, name):
    first = explain(words)[0]
    assert (first.kind, first.id) == (kind, name)
    assert first.sources


def test_all_readings_of_an_ambiguous_number():
    kinds = {reading.kind for reading in explain("4")}
    assert {"ibv_status", "nccl_result", "signal"} <= kinds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("NCCL_TIMEOUT", "nccl-timeout"),
        ("xid 79", "xid-79-replace"),
        ("Xid 43", "xid-43-nvlink"),
        ("opCount", "opcount-completed"),
        ("NCCL_BLOCKING_WAIT", "blocking-wait"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "trace-buffer-bytes"),
    ],
)
def test_folklore_is_corrected(words, said):
    assert said in [reading.id for reading in explain(words) if reading.kind == "folklore"]


def test_what_is_unknown_has_neighbours():
    assert explain("foobarbaz") == []
    assert "ecc-error" in near("ecc-eror")
    assert "NCCL_SOCKET_IFNAME" in near("NCCL_SOKET_IFNAME")


def test_everything_known_has_a_reading():
    assert all(explain(cause)[0].id == cause for cause in causes())
    assert all(explain(code)[0].id == code for code, _, _ in list(rules())[::5])
    assert all(explain(name)[0].kind == "variable" for name in list(names())[::9])
    assert all(explain(f"{row.kind} {row.code}")[0].id == str(row.code) for row in all_xids())


@over([(s,) for s in signatures().values()], lambda s: s.id)
def test_every_message_is_found_as_it_was_seen(signature):
    assert any(reading.id == signature.id for example in signature.examples for reading in explain(example))


def test_harmless_lines_are_called_harmless():
    reading = next(r for r in explain("NCCL INFO Failed to open libibverbs.so[.1]") if r.kind == "message")
    assert "harmless" in reading.text


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("Got completion from peer with status=12", "ibv_status", "12"),
        ("NET/IB : Got completion from peer 10.0.0.2<44206> with error 12, opcode 1, len 0", "ibv_status", "12"),
        ("us=12 opcode=0 len=0 vendor err 129 (Send) loc", "ibv_status", "12"),
        ("ror 12, opcode 1, len 0, vendor err 129", "ibv_status", "12"),
        ("mlx5: transport retry counter exceed", "ibv_status", "12"),
        ("{'msg': 'OSError: [Errno 28] No space left'}", "errno", "28"),
        ("connect failed (errno: 113 - No route to ho", "errno", "113"),
        ("nnot assign requested address", "errno", "99"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "gai_error", "-3"),
        ("(gai error: -2 - Name or service", "gai_error", "-2"),
        ("driver says CUDA_ERROR_ECC_UNCORRECTABLE here", "cuda_error", "214"),
        ("Cuda failure 719 'unspecified launch f", "cuda_error", "719"),
        ("misc/socket.cc:814 -> 6", "nccl_result", "6"),
        ("unhandled system error, NCCL version 2.19.3", "nccl_result", "2"),
        ("worker died: Signal 7 (SIGBUS) received by PID 9", "signal", "7"),
    ],
)
def test_vendor_strings_are_found_whatever_wraps_them_and_when_cut(text, kind, number):
    readings = explain(text)
    assert (kind, number) == (readings[0].kind, readings[0].id), [(r.kind, r.id) for r in readings]
