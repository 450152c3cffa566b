"""The knowledge base: every signature on every shape that prints it, and nobody else's words."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests import cost
from tests.conftest import ROOT
from tests.each import over
from whichrank.evidence.text.words import ALIGNED
from whichrank.facts.messages import REPORT, Signature, names_a_cause, recognise, signatures
from whichrank.facts.rule_rows import rows
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.discovery import discover_rules

SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))
ALL = list(signatures().values())
SHAPES = [(s, shape) for s in ALL for shape in s.examples]
each = over([(s,) for s in ALL], lambda s: s.id)


def test_there_are_enough_with_a_fix() -> None:
    assert sum(s.role != "harmless" and bool(s.fix) for s in ALL) >= 150


def test_known_harmless_lines_are_in_it() -> None:
    harmless = {s.id for s in ALL if s.role == "harmless"}
    assert {"nccl-ibverbs-missing", "nccl-plugin-shape-new", "nccl-ras-port", "nccl-proxy-accept"} <= harmless


@over(SHAPES, lambda s, shape: f"{s.id} on {shape!r}")
def test_every_shape_is_recognised_and_is_nobody_elses(signature: Signature, shape: str) -> None:
    found = [s for s, _ in recognise(shape)]
    assert signature in found
    rivals = [s.id for s in found if s is not signature and s.role == "root" and s.library != REPORT]
    assert rivals == []


@over([(s, shape) for s, shape in SHAPES if s.library != "Python"][::7], lambda s, shape: f"{s.id} on {shape!r}")
def test_launchers_may_stand_before_it(signature: Signature, shape: str) -> None:
    line = f"[1,13]<stderr>:node7:35:89 [5] misc/socket.cc:1 NCCL WARN {shape}"
    begins = signature.pattern.startswith("^") or "NCCL WARN" in signature.pattern
    assert begins or signature.id in [s.id for s, _ in recognise(line)]


@each
def test_causes_and_fields(signature: Signature) -> None:
    known = causes()
    assert signature.cause in known or (signature.cause == "" and signature.role in ("consequence", "harmless"))
    assert all(also in known and also != signature.cause for also in signature.also)
    assert signature.source
    assert signature.meaning.endswith((".", "…"))
    assert signature.fix or signature.role in ("harmless", "activity", "hint")


@each
def test_who_is_named_is_captured(signature: Signature) -> None:
    if "(?P<culprit>" not in signature.pattern:
        return
    for shape in signature.examples:
        named = re.search(r"(?:\b(?:R|Culprit r|on r)ank |/task:)(\d+)", shape)
        found = signature.search(shape)
        assert found is not None
        assert found["culprit"] == (named[1] if named else None)


@each
def test_anchors_can_be_scanned_for(signature: Signature) -> None:
    if signature.library != REPORT:
        assert all(len(anchor.encode()) >= ALIGNED for anchor in signature.anchors)
    assert all(any(anchor in shape for anchor in signature.anchors) for shape in signature.examples)


@each
def test_long_lines_take_linear_time(signature: Signature) -> None:
    anchor = signature.anchors[0]
    lines = [anchor * 3000, anchor + " " * 100_000, (anchor + " a:1 /x.") * 2000, anchor + "0." * 50_000]
    with cost.at_most(1):
        for line in lines:
            signature.search(line)


def test_every_root_has_a_rule_for_its_cause() -> None:
    judged = {rule.CAUSE for rule in discover_rules()}
    assert {s.cause for s in ALL if s.role == "root"} - judged == set()


def test_surely_known_messages_name_a_cause() -> None:
    assert names_a_cause("ValueError: Tensors must be contiguous")
    assert not names_a_cause("KeyError: 'labels'")
    assert not names_a_cause("ncclRemoteError: A call failed possibly due to a network error")


def _alternatives(pattern: str) -> list[str]:
    """The shapes of a pattern: what stands between its outermost bars."""
    found, depth, in_class, start, at = [], 0, False, 0, 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "|" and depth == 0:
            found.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*found, pattern[start:]]


@each
def test_every_shape_of_a_pattern_has_an_example(signature: Signature) -> None:
    if signature.library == REPORT:
        return  # people have no versions
    pattern = signature.pattern
    if pattern.startswith("(?:") and len(_alternatives(pattern)) == 1 and pattern.endswith(")"):
        inner = pattern[3:-1]
        pattern = inner if inner.count("(") == inner.count(")") and _is_one_group(inner) else pattern
    unseen = [shape for shape in _alternatives(pattern) if not any(re.search(shape, e) for e in signature.examples)]
    assert unseen == []


def _is_one_group(inner: str) -> bool:
    depth = 0
    for sign in re.sub(r"\\.|\[[^\]]*\]", "", inner):
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return True


# What a message means may hang on more than the message: these are judged by several rules, each by its own light.
BY_CIRCUMSTANCE = {"nccl-ib-status-12"}
ROOTS = [(s, shape) for s in ALL if s.role == "root" and s.id not in BY_CIRCUMSTANCE for shape in s.examples]


@over(ROOTS, lambda s, shape: f"{s.id} on {shape!r}")
def test_a_root_alone_is_told_as_its_cause(signature: Signature, shape: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(shape + "\n")
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.cause == signature.cause, verdict.summary
    assert verdict.confidence <= 0.95


HARMLESS = [(s, shape) for s in ALL if s.role == "harmless" for shape in s.examples]


@over(HARMLESS, lambda s, shape: f"{s.id} on {shape!r}")
def test_a_harmless_line_alone_accuses_nobody(signature: Signature, shape: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(shape + "\n")
    assert diagnose([tmp_path], jobs=1).verdict.cause in ("healthy", "unknown")


@pytest.mark.parametrize(
    ("name", "said", "denied"),
    [
        ("reported-firewall", "Disabling the firewall on both machines fixed it", "Disabling the firewall did not help, nothing works"),
        ("reported-loss", "There is packet loss on the storage network", "There is no packet loss on the storage network"),
        ("reported-loss", "5 packets transmitted, 4 received, 20% packet loss, time 4082ms", "5 packets transmitted, 5 received, 0% packet loss, time 4082ms"),
        ("reported-gid", "Setting NCCL_IB_GID_INDEX=3 solved it", "NCCL_IB_GID_INDEX=3 does not work and nothing helps"),
        ("reported-nccl-version", "Upgrading NCCL to 2.18.3 fixes the hang", "Upgrading NCCL to 2.18.3 doesn't help, no version works"),
        ("told-hang", "the job hangs after an hour", "the job ran for a week without hangs"),
    ],
)  # fmt: skip
def test_what_is_denied_is_not_said(name: str, said: str, denied: str) -> None:
    signature = signatures()[name]
    assert signature.affirmed(said)
    assert not signature.affirmed(denied)
    assert not signature.affirmed("the weather is fine")


# Words of public libraries and tools that happen to occur in one incident only.
LIBRARIES = {
    "baton", "file_baton", "comp", "dlerror", "geforce", "iterable", "libfabric", "num_proc", "openib", "save_state",
    "worker_count", "convert", "rccl", "lsof", "accelerate", "keyboardinterrupt", "link_up",
    "atexit", "dcgmi", "elif", "hostfile", "min_nodes", "minbytes", "nthread", "rdzv_endpoint",
}  # fmt: skip
ENGLISH = {"cards", "sure", "wrap", "models", "callback", "outputs", "participate"}
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]{3,}")


def _tokens(text: str) -> set[str]:
    return {word.lower() for word in _TOKEN.findall(text)}


def test_no_signature_or_rule_knows_an_incident_by_its_own_words() -> None:
    incidents = SHARED / "cases" / "incidents"
    if not incidents.is_dir():
        pytest.skip("the incidents are not beside this checkout")
    seen: dict[str, set[str]] = defaultdict(set)
    for file in incidents.glob("*/*"):
        if file.name != "truth.yaml":
            for word in _tokens(file.read_text(errors="replace")):
                seen[word].add(file.parent.name)
    facts = [*(SHARED / "facts").iterdir(), SHARED / "taxonomy.csv"]
    general = LIBRARIES | ENGLISH | set().union(*(_tokens(f.read_text(errors="replace")) for f in facts))
    own = {word for word, where in seen.items() if len(where) == 1} - general
    used = set().union(*(_tokens(" ".join((*s.anchors, s.pattern))) for s in ALL))
    used |= set().union(*(_tokens(" ".join((row.says, *row.fix))) for row in rows().values()))
    for file in (ROOT / "src" / "whichrank" / "rules").rglob("*.py"):
        if {"code", "settings"} & set(file.parts[file.parts.index("rules") :]):
            continue  # they judge programs and launch files
        code = file.read_text().split('"""', 2)[-1]
        used |= set().union(set(), *(_tokens(literal) for literal in re.findall(r'"([^"\n]*)"', code)))
    assert used & own == set()
