"""Where nothing says why: the code that people post in a note, or that lies beside the logs, read by lint."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from whichrank.model.contracts import Item
from whichrank.records.second_looks import PostedFault

_NOTES = (".md", ".rst", ".txt", ".markdown")
_MOST_CODE = 1 << 16
"""Characters of code that are read in all: more is a project, for which there is --source."""
_LARGEST_NOTE = 1 << 18
_MOST_READ = 1 << 23
"""Bytes of files that are looked at in all: the logs of a large job are no notes."""
_FENCE = re.compile(
    r"[ \t]{0,8}(?:(?:```+|~~~+)[ \t]{0,4}(?P<name>[\w+-]{0,20})[^`\n]{0,80}"
    r"|\{code(?::(?P<jira>[\w+-]{1,20}))?[^}\n]{0,40}\})[ \t]*"
)
_MARKS = (b"```", b"~~~", b"{code")
_PYTHON = frozenset({"", "python", "py", "python3", "ipython", "pytb"})
_METHOD = re.compile(r"(?:@\w[\w.]{0,60}\s{0,80})?def \w{1,80}\(self\b")
_CLASS = "class Posted(pytorch_lightning.LightningModule):"
_TRIMMED = 3
"""Lines at either end of a block that may be cut off in the middle of a statement."""
_USUAL = {
    "torch": "import torch",
    "dist": "import torch.distributed as dist",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as DDP",
    "DistributedDataParallel": "from torch.nn.parallel import DistributedDataParallel",
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
    "fully_shard": "from torch.distributed.fsdp import fully_shard",
    "xm": "import torch_xla.core.xla_model as xm",
    "hvd": "import horovod.torch as hvd",
    "pytorch_lightning": "import pytorch_lightning",
}
"""What people mean by these names where they leave the imports out."""
_TRAINER = re.compile(r"\btrainer\.(?:save_model|push_to_hub|predict|evaluate)\(")
_MAKES_TRAINER = re.compile(r"\btrainer\b\s{0,4}(?::[^=\n]{1,80})?=(?!=)|\bdef \w{1,80}\([^)]{0,400}\btrainer\b")
_HF_TRAINER = "import transformers\ntrainer = transformers.Trainer()"
"""What has these methods and is called so, where the line that makes it was left out."""
_SEVERITIES = ("error", "warning")


def posted_faults(items: Iterable[Item]) -> list[PostedFault]:
    """What lint finds in the code of all items, the surest first."""
    texts: dict[str, str] = {}
    left, unread = _MOST_CODE, _MOST_READ
    for item in items:
        if item.label in texts or not _may_hold_code(item) or item.size > unread:
            continue
        unread -= item.size
        if not (code := _code_of(item)):
            continue
        size = sum(map(len, code.split("\n")))
        if size <= left:
            texts[item.label] = code
            left -= size
    if not texts:
        return []
    from whichrank.flows.lint.check import lint_texts

    found = [f for f in lint_texts(texts) if f.cause and f.severity in _SEVERITIES and f.subject.code]
    found.sort(key=lambda f: (_SEVERITIES.index(f.severity), -f.grade))
    return [
        PostedFault(
            f.code, f.cause, f.category, f.severity, f.grade, f.message, f.evidence,
            f.subject.code[0].file, f.subject.code[0].line, f.fix,
        )
        for f in found
    ]  # fmt: skip


def _may_hold_code(item: Item) -> bool:
    suffix = PurePath(item.label).suffix.lower()
    return item.size <= (_MOST_CODE if suffix == ".py" else _LARGEST_NOTE) and suffix in (".py", *_NOTES)


def holds_code(item: Item) -> bool:
    """Whether there is code in it that would be read."""
    return _may_hold_code(item) and bool(_code_of(item))


def _code_of(item: Item) -> str:
    """The Python in an item, each line where it stands there; empty where there is none."""
    try:
        data = item.read()
    except OSError:
        return ""
    program = item.label.lower().endswith(".py")
    if not program and not any(mark in data for mark in _MARKS):
        return ""
    text = data.decode("utf-8", "replace")
    code = text if program else _quoted(text)
    if program and code[:1].isspace() and not _parses(code):  # the inner part of a function
        code = textwrap.dedent(code.expandtabs(4))
    return _with_imports(code) if code.strip() and _parses(code) else ""


def _quoted(text: str) -> str:
    """The blocks of a note that are Python, at their own lines, and nothing else."""
    lines = text.replace("\r\n", "\n").split("\n")
    kept = [""] * len(lines)
    for start, end in _blocks(lines):
        body = textwrap.dedent("\n".join(line.expandtabs(4) for line in lines[start:end])).split("\n")
        for first, last in _trims(len(body)):
            part = textwrap.dedent("\n".join(body[first : len(body) - last])).split("\n")
            if any(part) and _parses("\n".join(part)):
                kept[start + first : start + first + len(part)] = part
                if _METHOD.match("\n".join(part).lstrip("\n")):  # a hook, posted without its class
                    indented = [f"    {line}" if line else "" for line in part]
                    kept[start + first - 1 : start + first + len(part)] = [_CLASS, *indented]
                break
    return "\n".join(kept)


def _blocks(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Where the fenced blocks begin and end that may be Python."""
    opened: tuple[int, bool] | None = None
    for at, line in enumerate(lines):
        fence = _FENCE.fullmatch(line[:200])
        if fence is None:
            continue
        if opened is None:
            opened = at + 1, (fence["name"] or fence["jira"] or "").lower() in _PYTHON
        else:
            if opened[1]:
                yield opened[0], at
            opened = None


def _trims(length: int) -> Iterator[tuple[int, int]]:
    """How many lines to leave out at the beginning and at the end, the fewest first."""
    most = min(_TRIMMED, max(0, length - 2))
    yield from sorted(((a, b) for a in range(most + 1) for b in range(most + 1)), key=lambda pair: (sum(pair), pair[0]))


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _with_imports(code: str) -> str:
    """The usual imports behind the code, where it uses their names without them."""
    used = set(re.findall(r"\b\w+\b", code))
    bound = {name for line in code.split("\n") if "import" in line for name in re.findall(r"\b\w+\b", line)}
    more = [line for name, line in _USUAL.items() if name in used and name not in bound]
    if _TRAINER.search(code) and not _MAKES_TRAINER.search(code) and "lightning" not in code:
        more.append(_HF_TRAINER)
    return "\n".join([code, *more])
