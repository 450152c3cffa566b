"""Where the main thread of this process is in the code, whether it moves, and whether it does what takes long.

Copied into the job beside `startup.py`: standard library only, frames are looked at from the inside out.
"""

from __future__ import annotations

import opcode
import re
import sys
import threading
import types
from typing import Any

from whichrank.model import last_words as layout
from whichrank.worker.groups import ranges
from whichrank.worker.marks import MARKS

FRAMES = 80
LINES = 4096
MEMBERS = 32
"""Characters of a group's members that are told."""
MESSAGES = 64
"""Of a batch that are looked at."""
STOOD_NS = 2_000_000_000
ORDINARY = 60
"""Beats with progress inside a function after which its name means nothing: `train_and_evaluate` is the loop itself."""
_JOINING = frozenset({"init_process_group", "new_group", "_new_process_group_helper", "split_group", "rendezvous"})
_LEAVING = frozenset({"destroy_process_group", "_shutdown_backend"})
# The argument that names a peer or a root, by global rank; Gloo's recorder holds no message and no root.
_WHOM = {
    **dict.fromkeys(("send", "isend", "reduce", "gather", "gather_object", "send_object_list"), ("dst", "to")),
    **dict.fromkeys(("recv", "irecv", "broadcast", "scatter", "recv_object_list"), ("src", "from")),
    **dict.fromkeys(("broadcast_object_list", "scatter_object_list"), ("src", "from")),
}
# A thread of Python code hands over the interpreter only at jumps and at the start of functions.
_RUNNING = frozenset(number for name, number in opcode.opmap.items() if "JUMP" in name or name == "RESUME")
_IN_SLOTS = 1
"""CO_OPTIMIZED: the variables are not in a dictionary of their own."""
# What a thread is in that waits for another thread of its process.
_JOINS = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/multiprocessing/pool.py")
_ACROSS = ("distributed_c10d.py", "distributed/_functional_collectives.py", "distributed/rendezvous.py")
# Collectives that begin in C++, below the constructor of DistributedDataParallel: on NCCL all ranks first meet there.
_HIDDEN = frozenset({"_verify_param_shape_across_processes", "_sync_params_and_buffers", "_sync_module_states"})

# What may take minutes while all others wait, and does no harm. The libraries by their files …
_LIBRARIES = (
    ("compile", re.compile(r"/torch/(?:_dynamo|_inductor|_functorch|_export|onnx|jit|utils/cpp_extension)|/triton/")),
    ("checkpoint", re.compile(r"/torch/(?:serialization|distributed/checkpoint)|/safetensors/|/orbax/")),
    (
        "storage",
        re.compile(
            r"/(?:shutil|tarfile|zipfile|ftplib)\.py$|/(?:boto3|botocore|s3transfer|aiobotocore|s3fs|gcsfs|fsspec|adlfs|minio)/"
            r"|/google/cloud/|/azure/|/huggingface_hub/|/wandb/|/mlflow/|/comet_ml/|/neptune/|/clearml/"
            r"|/(?:urllib3|requests|httpx|httpcore|aiohttp|paramiko)/|/(?:http/client|urllib/request|subprocess)\.py$"
        ),
    ),
    # Somebody looks at it.
    ("debugger", re.compile(r"/(?:pdb|bdb)\.py$|/(?:debugpy|pydevd|_pydevd_bundle|pudb|ipdb)/|/IPython/terminal/")),
)
# Their threads are always there, whether they do something or not.
_TRACKERS = re.compile(r"/(?:wandb|mlflow|comet_ml|neptune|clearml)/")
# … and the training code by the names of its functions.
_NAMES = (
    ("checkpoint", re.compile(r"checkpoint|ckpt|snapshot|(?:^|_)save|state_dict|persist", re.IGNORECASE)),
    (
        "evaluation",
        re.compile(
            r"(?:^|_)(?:eval|valid|predict|generate|inference|test_epoch)|metric|plot|visuali[sz]|summar", re.IGNORECASE
        ),
    ),
    ("storage", re.compile(r"upload|download|push_to|export|backup|archive|publish|sync_to", re.IGNORECASE)),
    ("compile", re.compile(r"(?:^|_)(?:re)?compil|autotune", re.IGNORECASE)),
    ("preparation", re.compile(r"preprocess|tokeni[sz]e|prepare_data|build_(?:index|vocab|cache)", re.IGNORECASE)),
)


# What part of a step it is: the libraries by their files, the training code by the names of its functions.
_DATA = "data loading"
_PARTS = (
    (_DATA, re.compile(r"/torch/utils/data/|/(?:torchvision|PIL|webdataset|datasets|pyarrow|h5py|cv2)/")),
    ("backward", re.compile(r"/torch/autograd/|/torch/_tensor\.py$")),
    ("optimizer step", re.compile(r"/torch/optim/")),
    ("forward", re.compile(r"/torch/nn/")),
)
_PART_NAMES = (
    (_DATA, re.compile(r"(?:^|_)(?:load|fetch|read|decode|collate|augment)|loader|_batch$|^__(?:getitem|next)__$")),
    ("evaluation", re.compile(r"(?:^|_)(?:eval|valid)")),
    ("checkpoint", re.compile(r"checkpoint|ckpt|(?:^|_)save")),
)
_SHADOW = "algorithms/join.py"
"""A rank that ran out of inputs under Join: it follows the others, and says nothing about who is slow."""


class MainThread:
    """Asked at every beat; remembers where it was before."""

    def __init__(self) -> None:
        self.still_ns = self.fresh_ns = self._newest_ns = 0
        self._at = self._line = 0
        self._lines: set[int] = set()
        self._known: dict[types.CodeType, tuple[bool, str]] = {}
        self._named: list[types.CodeType] = []
        self._progress: dict[types.CodeType, int] = {}
        self._parts: dict[types.CodeType, str] = {}
        self.follows = False
        """It has run out of inputs under Join, and says nothing about who is slow."""

    def look(self, now_ns: int) -> dict[str, Any]:
        """The innermost line of the training code, and whether the thread is inside torch.distributed."""
        frame = thread_that_trains()
        joins = frame is not None and frame.f_code.co_filename.endswith(_JOINS)
        found: dict[str, Any] = {"flags": 0, "operation": "", "work": "", "activity": ""}
        at = line = 0
        running = frame is not None and frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _RUNNING
        self._named.clear()
        self.follows = False
        inner, stood = frame, 0 < self.still_ns < now_ns - STOOD_NS
        for _ in range(FRAMES):
            if frame is None:
                break
            code = frame.f_code
            at, line = hash((at, id(code), frame.f_lasti)), hash((line, id(code), frame.f_lineno))
            user, work = self._kind(code)
            found["activity"] = found["activity"] or self._part(code, user=user)
            if work and user:
                self._named.append(code)
            if work and not found["work"] and self._progress.get(code, 0) < ORDINARY:
                found["work"] = work
            if "place" not in found:
                if user:
                    found["place"] = f"{code.co_filename}:{frame.f_lineno} {code.co_name}"[-300:]
                    if stood and frame is inner:
                        found["operation"] = _posted(frame)
                else:
                    self.follows = self.follows or code.co_filename.endswith(_SHADOW)
                    self._inside(frame, found)
            frame = frame.f_back
        if joins and not found["work"]:
            found["work"] = self._done_elsewhere()
        found["activity"], found["work"] = MARKS.told(found["activity"], found["work"])
        found.update(self._moves(at, line, now_ns, running=running))
        return found

    def glance(self) -> tuple[bool | None, str]:
        """Whether it is inside torch.distributed (None: that says nothing), and its place in the training code."""
        frame = thread_that_trains()
        inside, place = False, ""
        for _ in range(FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if code.co_filename.endswith(_SHADOW):
                return None, ""
            if self._kind(code)[0]:
                place = f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {code.co_name}"
                break
            inside = inside or code.co_filename.endswith(_ACROSS) or code.co_name in _HIDDEN
            frame = frame.f_back
        return inside, place[:100]

    def _done_elsewhere(self) -> str:
        """Long work of the libraries in another thread, which the main one waits for: an upload, a checkpoint."""
        for frame in sys._current_frames().values():  # noqa: SLF001
            inner: types.FrameType | None = frame
            for _ in range(FRAMES):
                if inner is None:
                    break
                user, work = self._kind(inner.f_code)
                if not user and work in ("checkpoint", "storage") and not _TRACKERS.search(inner.f_code.co_filename):
                    return work
                inner = inner.f_back
        return ""

    def _part(self, code: types.CodeType, *, user: bool) -> str:
        part = self._parts.get(code)
        if part is None:
            text, signs = (code.co_name, _PART_NAMES) if user else (code.co_filename, _PARTS)
            part = next((label for label, sign in signs if sign.search(text)), "")
            if len(self._parts) < LINES:
                self._parts[code] = part
        return part

    def forget(self, now_ns: int) -> None:
        """There was progress: where it has been before counts no more."""
        self._lines = {self._line}
        self.fresh_ns = self._newest_ns = now_ns
        for code in self._named:
            self._progress[code] = self._progress.get(code, 0) + 1

    def _moves(self, at: int, line: int, now_ns: int, *, running: bool) -> dict[str, int]:
        if at != self._at or running or not self.still_ns:
            self._at, self.still_ns = at, now_ns
        self._line = line
        if line not in self._lines:
            # The last but one: a line that a loop comes to once in a while is no walk.
            self.fresh_ns, self._newest_ns = self._newest_ns or now_ns, now_ns
            if len(self._lines) < LINES:
                self._lines.add(line)
        return {"still_ns": self.still_ns, "fresh_ns": self.fresh_ns}

    def _kind(self, code: types.CodeType) -> tuple[bool, str]:
        """Whether it belongs to the training code, and what long work it is."""
        kind = self._known.get(code)
        if kind is None:
            file = code.co_filename
            user = is_training_code(file)
            text, signs = (code.co_name, _NAMES) if user else (file, _LIBRARIES)
            kind = (user, next((label for label, sign in signs if sign.search(text)), ""))
            if len(self._known) < LINES:
                self._known[code] = kind
        return kind

    @staticmethod
    def _inside(frame: types.FrameType, found: dict[str, Any]) -> None:
        """A frame of a library, between the training code and where the thread is."""
        code = frame.f_code
        if code.co_filename.endswith(_ACROSS):
            found["flags"] = layout.IN_COLLECTIVE
            found["operation"] = _operation(frame)
            if code.co_name in _JOINING:
                found["phase"] = layout.JOINING
            elif code.co_name in _LEAVING:
                found["phase"] = layout.LEAVING
        elif code.co_name in _HIDDEN and code.co_filename.endswith("distributed/utils.py"):
            found["flags"], found["operation"] = layout.IN_COLLECTIVE, code.co_name
        elif code.co_name == "_shutdown" and code.co_filename.endswith("threading.py"):
            found["phase"] = layout.LEAVING


def is_training_code(file: str) -> bool:
    """Neither a library nor Python itself."""
    return "site-packages" not in file and not file.startswith(("<frozen", sys.base_prefix, sys.prefix))


def held_by(frame: types.FrameType) -> dict[str, object]:
    """The variables of a frame. Up to Python 3.12 it keeps the answer until the function ends, and with it every tensor
    that is in it: that is taken out again. A module's variables are its own, and a debugger's answer is the frame's."""
    told = frame.f_locals
    found = dict(told)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _IN_SLOTS and frame.f_trace is None:
        told.clear()
    return found


def thread_that_trains() -> types.FrameType | None:
    """Where it is: the one that has marked a phase, or else the main one."""
    frames = sys._current_frames()  # noqa: SLF001
    marked = frames.get(MARKS.thread) if MARKS.thread is not None else None
    return marked or frames.get(threading.main_thread().ident or 0)


def _operation(frame: types.FrameType) -> str:
    """The function of torch.distributed, and whom it is called with: `recv from 3`, `all_reduce of 0,3`."""
    name = frame.f_code.co_name
    argument, word = _WHOM.get(name, ("", ""))
    whom = frame.f_locals.get(argument) if argument else None
    if name == "new_group" and frame.f_locals.get("use_local_synchronization") is True:
        return name + _of(frame.f_locals.get("ranks"))
    return (f"{name} {word} {whom}" if type(whom) is int else name) + _members(frame.f_locals.get("group"))


def _posted(frame: types.FrameType) -> str:
    """`batch_isend_irecv of 0,2` where the function holds messages that it has posted: the peers that they are of.

    `work.wait()` has no frame of its own, and Gloo's recorder holds no message."""
    kind = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "P2POp", None)
    lists: list[list[Any]] = (
        [held for held in held_by(frame).values() if type(held) is list] if kind is not None else []
    )
    peers = {message.peer for posted in lists for message in posted[:MESSAGES] if type(message) is kind}
    text = ranges(sorted(peers))
    return f"batch_isend_irecv of {text}" if text and len(text) <= MEMBERS else ""


def _members(group: object) -> str:
    """` of 0,3` for a group of some ranks; NCCL's recorder holds nothing of one whose first call waits for a member."""
    world: Any = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    if group is None or world is None or group is getattr(world, "default_pg", None):
        return ""
    if type(group) in (str, tuple, list):  # a name or a mesh, as functional collectives take
        return ""
    known = getattr(world, "pg_group_ranks", {})
    return _of(list(known.get(group, ())) if type(group).__hash__ is not None else ())


def _of(ranks: Any) -> str:
    """` of 0-2`; nothing where that is long, or where these are no ranks."""
    plain = type(ranks) in (list, tuple) and all(type(rank) is int for rank in ranks)
    text = ranges(sorted(ranks)) if plain else ""
    return f" of {text}" if text and len(text) <= MEMBERS else ""
