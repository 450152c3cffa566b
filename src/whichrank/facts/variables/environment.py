"""The environment variables that NCCL and PyTorch read: since when, how, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from whichrank.facts.tables import rows

Version = tuple[int, ...]

# Names with these beginnings belong to NCCL, PyTorch's distributed package or Gloo: one that no
# catalogue knows is read by nobody. Other names are judged only when they are nearly a known one.
FAMILIES = (
    "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_DIST_", "TORCH_DISTRIBUTED_", "TORCHELASTIC_",
    "TORCH_ELASTIC_", "TORCH_GLOO_", "GLOO_",
)  # fmt: skip
# Sources of plugins end with this tag; the binaries that follow do not contain them.
LAST_SOURCE_TAG: Version = (2, 30, 7)


class Variable(NamedTuple):
    """One row of the catalogue."""

    name: str
    library: str
    """"NCCL" or "PyTorch"."""
    kind: str
    default: str
    allowed: str
    since: str
    """As the catalogue says it: "2.8", or "<= 2.13" where the first release is not known."""
    until: str
    """Last version that reads it; empty while the newest one does."""
    when_read: str
    must_match: bool
    meaning: str
    caution: str
    parser: str
    values_text: str
    source: str

    @property
    def first(self) -> Version | None:
        """The first version that reads it, where that is known."""
        return version(self.since) if self.since[:1].isdigit() else None

    @property
    def values(self) -> tuple[str, ...]:
        """What the parser can check a value against."""
        return _values(self.values_text)

    @property
    def last(self) -> Version | None:
        return version(self.until) if self.until else None


class Rename(NamedTuple):
    """A name that gave way to another one, or (an empty `new`) to nothing."""

    old: str
    new: str
    library: str
    since: Version
    still_read: bool
    source: str


class Folklore(NamedTuple):
    """What is said of a variable, and what is true."""

    name: str
    says: str
    truth: str
    instead: str
    source: str


@cache
def version(text: str) -> Version:
    """`2.13.0+cu130` -> (2, 13, 0); what is no version is an empty tuple."""
    match = re.match(r"\d+(?:\.\d+){0,3}", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


@cache
def catalogue() -> dict[str, Variable]:
    """Name -> variable, of both libraries; PyTorch's row wins where both know a name."""
    parsers = {row["name"]: row for row in rows("variables/values.csv")}
    of_nccl = list(rows("variables/nccl.csv"))
    newest = max(version(row["last_version_seen"]) for row in of_nccl)
    known = {row["name"]: _nccl(row, parsers.get(row["name"], {}), newest) for row in of_nccl}
    for row in rows("variables/torch.csv"):
        if row["since"] != "never":
            known[row["name"]] = _torch(row, parsers.get(row["name"], {}))
    return known


def counts(name: str) -> bool:
    """Whether it matters that this variable gets lost: NCCL, PyTorch, torchrun (its options as PET_…), or the libfabric
    below NCCL's plugin reads it."""
    return name in catalogue() or name.startswith(("FI_", "OFI_NCCL_", "PET_")) or name == "CUDA_VISIBLE_DEVICES"


def is_read(name: str) -> bool:
    """Whether some library that ranks use reads it; what launchers hand over is often a script's own helper."""
    return name in catalogue() or (name in others() and others()[name].library not in _OF_NO_LIBRARY)


_OF_NO_LIBRARY = frozenset({"a build", "the launcher", "the rendezvous of PyTorch"})


def must_match(name: str) -> bool:
    """Whether all ranks must have the same value."""
    variable = catalogue().get(name)
    return variable is not None and variable.must_match


def read_again(name: str) -> bool:
    """Whether NCCL reads it anew for every communicator: those that are made later see a change."""
    variable = catalogue().get(name)
    return variable is not None and variable.when_read == "every communicator init"


@cache
def others() -> dict[str, Variable]:
    """Variables of other libraries that ranks use: CUDA, OpenMP, libfabric, UCX, PyTorch beside its process groups."""
    return {row["name"]: _other(row) for row in rows("variables/libraries.csv")}


def _other(row: dict[str, str]) -> Variable:
    allowed = row["says"] or row["values"].replace("|", ", ").replace("..", " to ")
    return Variable(
        row["name"], row["library"], "", "", "" if row["parser"] == "not_words" else allowed, "", "", "", False, "", "",
        row["parser"], row["values"], row["source"],
    )  # fmt: skip


@cache
def renames() -> dict[str, Rename]:
    """Old name -> what it is called now."""
    return {
        row["old"]: Rename(
            row["old"],
            row["new"],
            row["library"],
            version(row["since"]),
            row["still_read"] == "yes",
            row["source"],
        )
        for row in rows("variables/renames.csv")
    }


@cache
def folklore() -> dict[str, Folklore]:
    return {row["name"]: Folklore(**row) for row in rows("variables/folklore.csv")}


@cache
def unread() -> dict[str, Folklore]:
    """Names that are passed around and that no version has ever read."""
    return {name: lore for name, lore in folklore().items() if name not in catalogue()}


class Output(NamedTuple):
    """A variable that a launcher writes for its ranks, whatever it held before."""

    name: str
    launchers: tuple[str, ...]
    read_elsewhere: bool
    """Ranks that another launcher starts read it."""
    instead: str


@cache
def outputs() -> dict[str, Output]:
    return {
        row["name"]: Output(
            row["name"], tuple(row["launchers"].split("|")), row["read_elsewhere"] == "yes", row["instead"]
        )
        for row in rows("variables/outputs.csv")
    }


@cache
def _neighbours() -> tuple[dict[str, str], tuple[str, ...]]:
    owners = {row["pattern"]: row["owner"] for row in rows("variables/neighbours.csv")}
    return owners, tuple(pattern[:-1] for pattern in owners if pattern.endswith("*"))


def neighbour(name: str) -> str:
    """Whose variable this is, if it belongs to somebody else; empty otherwise."""
    owners, prefixes = _neighbours()
    if name in owners:
        return owners[name]
    if not name.startswith(prefixes):
        return ""
    return next(owners[f"{prefix}*"] for prefix in prefixes if name.startswith(prefix))


def in_family(name: str) -> bool:
    return name.startswith(FAMILIES)


# RCCL reads NCCL's names, and few of its own that NCCL has not; the plugin of libfabric reads no name with NCCL_OFI_.
_TURNED = {"RCCL_": "NCCL_", "NCCL_OFI_": "OFI_NCCL_"}


def turned(name: str) -> str:
    """The real name, where another library's beginning stands in front of it: RCCL_DEBUG, NCCL_OFI_PROTOCOL."""
    before = next((each for each in _TURNED if name.startswith(each)), "")
    real = f"{_TURNED[before]}{name.removeprefix(before)}" if before else ""
    return real if real in catalogue() or real in others() else ""


def same_setting(name: str) -> frozenset[str]:
    """All names under which this setting is read: setting one of them is setting it."""
    names = {name}
    for rename in renames().values():
        if rename.still_read and rename.new and names & {rename.old, rename.new}:
            names |= {rename.old, rename.new}
    return frozenset(names)


def _nccl(row: dict[str, str], parser: dict[str, str], newest: Version) -> Variable:
    last = version(row["last_version_seen"])
    outside = row["when_read"].startswith("when the external plugin")
    current = last >= newest or (outside and last >= LAST_SOURCE_TAG)
    kind = row["kind"]
    return Variable(
        name=row["name"],
        library="NCCL",
        kind=kind,
        default=row["default"],
        allowed=row["allowed_values"],
        since=row["first_version_seen"],
        until="" if current else row["last_version_seen"],
        when_read=row["when_read"],
        must_match=row["must_match_across_ranks"] == "yes",
        meaning=row["meaning"],
        caution=row["risk_note"],
        parser=parser.get("parser", "nccl_int" if kind in {"int", "bool"} and not outside else ""),
        values_text=parser.get("values") or (row["allowed_values"] if kind == "int" else ""),
        source=row["source"],
    )


# Every rank has to agree on these; the reason is in the catalogue's row of each.
TORCH_MUST_MATCH = frozenset({
    "TORCH_DISTRIBUTED_DEBUG", "TORCH_DIST_INIT_BARRIER", "TORCH_NCCL_BCAST_UNIQUEID", "TORCH_GLOO_LAZY_INIT",
    "TORCH_NCCL_RANKS_PER_ROOT", "TORCH_NCCL_USE_COMM_NONBLOCKING", "TORCH_DIST_USE_NCCL2",
    "GLOO_DEVICE_TRANSPORT", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
})  # fmt: skip


def _torch(row: dict[str, str], parser: dict[str, str]) -> Variable:
    name = row["name"]
    if name in {"TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"}:
        when = "when torch is imported"
    elif name.startswith("TORCH_FR_") or "TRACE_" in name:
        when = "when the flight recorder is first used, which is when the first process group is made"
    elif row["scope"] == "elastic":
        when = "when torchrun starts its workers"
    else:
        when = "when a process group is made"
    return Variable(
        name=name,
        library="PyTorch",
        kind=row["scope"],
        default=row["default"],
        allowed=parser.get("values", "").replace("|", ", ") or _WORDS.get(parser.get("parser", ""), ""),
        since=row["since"],
        until=row["until"],
        when_read=when,
        must_match=name in TORCH_MUST_MATCH,
        meaning=row["meaning"],
        caution=row["interactions"],
        parser=parser.get("parser", ""),
        values_text=parser.get("values", ""),
        source=row["verified"],
    )


_WORDS = {
    "torch_bool": "1/y/yes/t/true or 0/n/no/f/false, in any case; anything else is an error",
    "torch_int": "a whole number",
    "python_int": "a whole number; anything else is an error",
    "flag01": "0 or 1; anything else is ignored with a warning",
}


def _values(text: str) -> tuple[str, ...]:
    """`A|B` as words, `0..7` as its two ends, `0,1,2` as numbers; other text is for people only."""
    if "|" in text:
        return tuple(text.split("|"))
    if match := re.match(r"(-?\d+)\.\.(\d+)(?![\w.])", text):
        return ("..", match[1], match[2])
    if match := re.match(r"\d+(?:,\d+)+(?![\w.])", text):
        return tuple(match[0].split(","))
    return ()


def names() -> Iterable[str]:
    """Every name that has a page: those that are read, and those that are only said to be."""
    return (*catalogue(), *unread())


def page(name: str) -> dict[str, Any] | None:
    """All that is known of one variable, for `explain`; None for a name that nobody reads or speaks of."""
    from whichrank.facts.variables.page import page as write

    return write(name)
