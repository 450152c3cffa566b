"""Whether a folder is a checkpoint, and a whole one, by the layouts of those who write them.

Torch's distributed checkpoints, safetensors with an index, the Trainer of Hugging Face, DeepSpeed, Lightning and
our own; one may lie inside another.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from whichrank.evidence.pickle import inert
from whichrank.model.errors import UnreadableError
from whichrank.run.resume import checkpoint_files as files
from whichrank.worker import checkpoint as own

MOST = 20_000
"""Files of one checkpoint that are looked at."""
DEPTH = 3
METADATA = 256 << 20
HASHED = 1 << 30
"""Bytes of a checkpoint of our own whose checksum is compared; of a larger one only the sizes."""
LATE_S = 5.0
"""Shards may be so much younger than the metadata that is written last: clocks of two hosts differ."""
_STEP = re.compile(r"(step|iteration|iter|checkpoint|ckpt|epoch)[-_=]?(\d{1,15})(?![a-z\d])", re.IGNORECASE)
_MARKS = (".metadata", "trainer_state.json", "model.safetensors.index.json", "pytorch_model.bin.index.json", own.MARK)
_ZERO = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_(optim|model)_states\.pt")
_MODEL = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_RANKED = re.compile(r"(.*?[-_]?rank[-_]?|rng_state_|random_states_)(\d+)(\D*)")


def step_of(name: str) -> tuple[str, int] | None:
    """The number that a name carries and what it counts; a step before an epoch."""
    found = {word.lower(): int(number) for word, number in _STEP.findall(name)}
    for word, number in sorted(found.items(), key=lambda item: item[0] == "epoch"):
        return ("epoch" if word == "epoch" else "step", number)
    return None


def is_checkpoint(folder: Path) -> bool:
    """Whether this folder as a whole is one, rather than a place for many."""
    entries = listing(folder)
    if step_of(folder.name) is not None or folder.suffix == ".ckpt":
        # "step1/epoch_5" is a place with one in it.
        return any(entry.is_file() for entry in entries) or not any(step_of(entry.name) for entry in entries)
    return any((folder / mark).exists() for mark in _MARKS) or any(
        _ZERO.fullmatch(entry.name) or _MODEL.fullmatch(entry.name) or entry.suffix == ".distcp" for entry in entries
    )


def kind_of(path: Path) -> str:
    """Who wrote it, in a word."""
    names = {entry.name for entry in listing(path)} if path.is_dir() else set()
    if own.MARK in names:
        return "whichrank"
    if "trainer_state.json" in names:
        return "transformers"
    if ".metadata" in names or any(name.endswith(".distcp") for name in names):
        return "torch distributed checkpoint"
    if any(_ZERO.fullmatch(name) or _MODEL.fullmatch(name) for name in names):
        return "deepspeed"
    if path.suffix == ".safetensors" or any(name.endswith(".safetensors") for name in names):
        return "safetensors"
    return "lightning" if path.suffix == ".ckpt" else "folder" if path.is_dir() else "file"


def problem(path: Path, depth: int = 0) -> str:
    """What is wrong with a checkpoint; "" where nothing is."""
    if files.is_draft(path.name) or (path.name.startswith(".") and path.name.endswith(own.PART)):
        return "it was never finished: its name is that of a draft"
    if not path.is_dir():
        return files.problem(path)
    if (path / own.MARK).exists():
        return own.problem(path, verify=_bytes(path) <= HASHED)
    entries = listing(path)
    if not entries:
        return "it is empty"
    if len(entries) > MOST:
        return f"it has more than {MOST} files"
    return (
        _drafts(entries)
        or _distributed(path, entries)
        or _index(path, entries)
        or _trainer(path)
        or _deepspeed(entries)
        or _numbered(entries)
        or _contents(path, entries, depth)
    )


def holds_some(folder: Path) -> bool:
    """Whether there is anything of a checkpoint in a folder, or one folder further down."""
    entries = listing(folder)
    below = [entry for inner in entries if inner.is_dir() for entry in listing(inner)]
    return any(entry.suffix in files.KNOWN or entry.name in _MARKS for entry in (*entries, *below))


def _contents(path: Path, entries: list[Path], depth: int) -> str:
    """Each file by its own end, each folder within by the same questions."""
    seen = False
    for entry in entries:
        if entry.is_dir():
            if entry.name.startswith(".") or depth >= DEPTH:
                continue
            why = problem(entry, depth + 1) if listing(entry) else ""
            seen = seen or not why
            if why and (is_checkpoint(entry) or holds_some(entry)):
                return f"{entry.name}: {why}"
        elif entry.suffix in files.KNOWN or entry.name in _MARKS:
            if why := files.problem(entry):
                return why
            seen = True
    # The answer is asked of the outermost folder alone: one within may hold a tokenizer, or logs.
    return "" if seen or depth else f"no file of a checkpoint in {path.name}"


def _drafts(entries: list[Path]) -> str:
    draft = next((entry for entry in entries if files.is_draft(entry.name) and not entry.is_dir()), None)
    return f"{draft.name} was never finished" if draft is not None else ""


def _distributed(path: Path, entries: list[Path]) -> str:
    """Torch writes the shards, then the metadata that says which bytes of which shard are whose."""
    shards = [entry for entry in entries if entry.suffix == ".distcp"]
    by_rank = [entry for entry in entries if re.fullmatch(r"__\d+\.metadata", entry.name)]
    whole = path / ".metadata"
    if not shards and not whole.exists():
        return ""
    if whole.exists():
        return _shards(path, whole)
    if not by_rank:
        return "its .metadata is missing: it is written last"
    told = {entry.name.split(".")[0] for entry in by_rank}
    silent = next((shard for shard in shards if shard.name.rpartition("_")[0] not in told), None)
    if silent is not None:
        return f"nothing tells what is in {silent.name}: its rank did not finish"
    return next((why for entry in by_rank if (why := _shards(path, entry))), "")


def _shards(path: Path, metadata: Path) -> str:
    """Every shard is there, with as many bytes as are told of it, and none was written after the metadata."""
    try:
        told = metadata.stat()
        if told.st_size > METADATA:
            return ""
        needed = shard_sizes(metadata.read_bytes())
    except OSError as error:
        return f"{metadata.name} can't be read ({error.strerror})"
    except UnreadableError as error:
        # Too much to be read is no fault of the checkpoint; damage is.
        return "" if "more than" in error.message else f"{metadata.name}: {error.message}"
    for name, size in sorted(needed.items()):
        shard = path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f"{metadata.name} names a file outside: {name}"
        try:
            row = shard.stat()
        except OSError:
            return f"the shard {name} is missing"
        if row.st_size < size:
            return f"the shard {name} ends early: {row.st_size} of {size} bytes"
        if row.st_mtime - told.st_mtime > LATE_S:
            return f"the shard {name} is younger than {metadata.name}: it was being overwritten"
    return ""


def shard_sizes(metadata: bytes) -> dict[str, int]:
    """File -> bytes that it must have, by the metadata of a distributed checkpoint."""
    value = inert.decode(metadata)
    stored: Any = value.has("storage_data") if isinstance(value, inert.Thing) else None
    if not isinstance(stored, inert.Pairs):
        raise UnreadableError("its index does not say which file holds what")
    sizes: dict[str, int] = {}
    for _, place in stored:
        if not isinstance(place, inert.Thing):
            continue
        name, offset, length = place.has("relative_path"), place.has("offset"), place.has("length")
        if type(name) is str and type(offset) is int and type(length) is int:
            sizes[name] = max(sizes.get(name, 0), offset + length)
    return sizes


def _index(path: Path, entries: list[Path]) -> str:
    """Every shard that an index names is there; whether it is whole, its own end says."""
    for index in entries:
        if not index.name.endswith(".index.json"):
            continue
        told = files.document(index)
        shards = told.get("weight_map") if isinstance(told, dict) else None
        if not isinstance(shards, dict):
            return f"{index.name} is no whole index"
        for name in sorted({str(shard) for shard in shards.values()}):
            if not (path / Path(name).name).is_file():
                return f"the shard {name} is missing, which {index.name} names"
    return ""


def _trainer(path: Path) -> str:
    """The Trainer writes weights, optimizer and scheduler, random state, and its own state."""
    state = path / "trainer_state.json"
    if not state.exists():
        return "trainer_state.json is missing" if re.fullmatch(r"checkpoint-\d+", path.name) and any(
            (path / name).exists() for name in ("config.json", "training_args.bin", "optimizer.pt", "scheduler.pt")
        ) else ""  # fmt: skip
    if files.document(state) is None:
        return "trainer_state.json is not whole"
    weights = ("*.safetensors", "*.bin", "*.pt", "global_step*", "pytorch_model_fsdp*", "*.distcp")
    if not any(entry.name != "training_args.bin" for pattern in weights for entry in path.glob(pattern)):
        return "there are no weights in it"
    if (path / "scheduler.pt").exists() and not [*path.glob("optimizer*"), *path.glob("global_step*")]:
        return "optimizer.pt is missing, scheduler.pt is there"
    return ""


def _deepspeed(entries: list[Path]) -> str:
    """Every data-parallel rank's part of every model-parallel rank is there."""
    parts = [found for entry in entries if (found := _ZERO.fullmatch(entry.name))]
    models = [entry for entry in entries if _MODEL.fullmatch(entry.name)]
    if not parts and not models:
        return ""
    if not models and not any(part[3] == "model" for part in parts):
        return "the file of the model (mp_rank_00_model_states.pt) is missing"
    data, model = _worlds(entries)
    model = max([model, *(int(part[2]) + 1 for part in parts), *(int(m.name.split("_")[2]) + 1 for m in models)])
    for kind in sorted({part[3] for part in parts}):
        have = {(int(part[1]), int(part[2])) for part in parts if part[3] == kind}
        ranks = max([data, *(rank + 1 for rank, _ in have)])
        for mp in range(model):
            for dp in range(ranks):
                if (dp, mp) not in have:
                    return f"zero_pp_rank_{dp}_mp_rank_{mp:02}_{kind}_states.pt is missing (of {ranks} × {model} ranks)"
    here = {int(entry.name.split("_")[2]) for entry in models}
    absent = next((mp for mp in range(model) if models and mp not in here), None)
    return f"mp_rank_{absent:02}_model_states.pt is missing (of {model})" if absent is not None else ""


def _worlds(entries: list[Path]) -> tuple[int, int]:
    """How many ranks wrote, data- and model-parallel, as the file of the model says; 0 where it does not."""
    for entry in entries:
        if entry.name.endswith("_model_states.pt") and (values := files.saved_values(entry)) is not None:
            data, model = values.of("dp_world_size"), values.of("mp_world_size")
            if type(data) is int and type(model) is int and 0 < data < MOST and 0 < model < MOST:
                return data, model
    return 0, 0


def _numbered(entries: list[Path]) -> str:
    """Files with the number of a rank in their name: none is left out in between."""
    series: dict[tuple[str, str], set[int]] = {}
    for entry in entries:
        found = _RANKED.fullmatch(entry.name)
        if found and not _ZERO.fullmatch(entry.name) and len(found[2]) < 8:
            series.setdefault((found[1], found[3]), set()).add(int(found[2]))
    for (before, after), numbers in series.items():
        absent = next((number for number in range(max(numbers)) if number not in numbers), None)
        if absent is not None and max(numbers) < MOST:
            return f"{before}{absent}{after} is missing, {before}{max(numbers)}{after} is there"
    return ""


def lacks(path: Path, other: Path) -> str:
    """A kind of file that another checkpoint of the same place has, and this one has not."""
    mine, theirs = ({_shape(entry.name) for entry in listing(each)} for each in (path, other))
    wanted = {name for name in theirs - mine if Path(name).suffix in files.KNOWN or name in _MARKS}
    # Weights in one file instead of several are another shape of the same thing.
    wanted = {name for name in wanted if "-of-" not in name and not name.endswith((".safetensors", ".index.json"))}
    return f"{min(wanted)} is missing, which {other.name} has" if wanted else ""


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def listing(folder: Path) -> list[Path]:
    """What is in a folder, in order; nothing where it can't be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in listing(folder) if entry.is_file())
