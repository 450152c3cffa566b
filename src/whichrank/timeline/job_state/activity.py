"""What a process was doing, read off its Python stack.

A NCCL call returns at once, so the line under a hang is the next call that synchronises with the GPU; on Gloo it
is the collective itself. Both are waiting. Everything else that keeps a rank from its next collective has a name
here, decided by the functions and files on the stack, the innermost telling first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.findings import CodePlace
from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack, innermost_user_frame, is_user_frame, main_thread

Doing = Literal[
    "waiting",  # in a collective, or in a call that synchronises with the GPU
    "starting",  # making or joining a process group
    "leaving",  # destroying groups, or past the end of the script
    "data",
    "checkpoint",
    "evaluation",
    "preprocessing",
    "compile",
    "storage",
    "user",
    "unknown",
]


NamesCalled = Mapping[str, Sequence[tuple[int, str, str]]]
"""By file: lines of calls, with the name that is called."""


class Activity(Struct, frozen=True):
    """What a thread does, the frame that says so, and the deepest line of the training code."""

    doing: Doing
    frame: Frame | None
    place: CodePlace | None
    collective: str = ""
    """The collective it is in, when it is in one."""
    idle: bool = False
    presumed: bool = False
    """Nothing on the stack says that it waits; that most ranks are at the same line does, or the code there."""

    def __str__(self) -> str:
        if self.frame is None:
            return "nothing readable"
        return f"{self.frame.function} ({self.frame.file.rsplit('/', 1)[-1]}:{self.frame.line})"


_COLLECTIVES = (
    "all_reduce|all_gather|all_gather_into_tensor|all_gather_tensor|all_gather_single|all_gather_object|reduce_scatter|"
    "reduce_scatter_tensor|reduce_scatter_single|broadcast|broadcast_object_list|barrier|reduce|gather|gather_object|"
    "scatter|scatter_object_list|all_to_all|all_to_all_single|send|recv|isend|irecv|batch_isend_irecv|"
    "monitored_barrier|send_object_list|recv_object_list|sync_global_devices|process_allgather|broadcast_one_to_all"
)
_IN_COLLECTIVE = re.compile(rf"^_?(?:{_COLLECTIVES})(?:_base|_coalesced)?$")
_COLLECTIVE_FILES = re.compile(
    r"distributed|accelerate/utils/operations\.py$|deepspeed/comm/|horovod/|jax/experimental/multihost_utils\.py$"
)
_GATHERS = (
    (
        "torch/distributed/_state_dict_utils.py",
        re.compile(r"^_(?:gather|broadcast|distribute)_(?:state_dict|tensors)$|^_all_gather_sharded_tensor$"),
    ),
    ("torch/distributed/fsdp/_unshard_param_utils.py", re.compile(r"^_unshard_")),
    ("torch/distributed/fsdp/_flat_param.py", re.compile(r"^_all_gather_flat_param$")),
    ("_fsdp_collectives.py", re.compile(r"^foreach_(?:all_gather|reduce)$")),
)
"""What collects or spreads parameters or a full state dict: every rank has to call it, although it is seen in
checkpoint code."""
_SPREADS = (("_broadcast_", "broadcast"), ("_distribute_", "broadcast"), ("foreach_reduce", "reduce_scatter"))
_SYNC = re.compile(
    r"^(?:synchronize|_cuda_synchronize|item|wait|wait_stream|cpu|tolist|result|backward|_engine_run_backward|run_backward)$"
)
_RUNS = ("active", "gil")
_BACKWARD = ("backward", "_engine_run_backward", "run_backward")
# (what, file, function): the first that matches the innermost frames outwards names it.
_LIBRARY_SIGNS: tuple[tuple[Doing, re.Pattern[str], re.Pattern[str] | None], ...] = (
    ("user", re.compile(r"torch/utils/file_baton\.py$"), None),  # a lock, whatever it is for
    ("leaving", re.compile(r"distributed_c10d\.py$"), re.compile(r"^(?:destroy_process_group|_shutdown|shutdown)")),
    (
        "leaving",
        re.compile(r"(?:threading|atexit)\.py$|concurrent/futures/"),
        re.compile(r"^(?:_shutdown|_run_exitfuncs|_python_exit)$"),
    ),
    (
        "starting",
        re.compile(r"distributed_c10d\.py$|rendezvous\.py$|device_mesh\.py$|distributed/elastic/rendezvous/"),
        re.compile(
            r"init_process_group|new_group|_new_process_group|rendezvous|_create_c10d_store|_store_based_barrier|init_device_mesh|split_group|_env_rendezvous"
        ),
    ),
    (
        "starting",
        re.compile(r"torch/distributed/utils\.py$"),
        re.compile(r"_verify_param_shape_across_processes|_sync_module_states"),
    ),
    (
        "compile",
        re.compile(
            r"torch/_dynamo/(?!eval_frame\.py)|torch/_inductor/|torch/_functorch/|/triton/compiler|triton/backends|cpp_extension\.py$|torch/_export/"
        ),
        None,
    ),
    (
        "checkpoint",
        re.compile(
            r"torch/serialization\.py$|distributed/checkpoint/|safetensors/|/checkpointing\.py$|checkpoint_io|jax/experimental/array_serialization|/orbax/checkpoint/|torch/distributed/fsdp/_state_dict_utils"
        ),
        None,
    ),
    ("data", re.compile(r"torch/utils/data/|/torchdata/|/webdataset/|/streaming/base|/ffcv/|/nvidia/dali/"), None),
    (
        "preprocessing",
        re.compile(
            r"/tokenizers?/|tokenization_|/datasets/(?:arrow|builder|load|dataset_dict|fingerprint)|huggingface_hub/|/filelock/|indexed_dataset|gpt_dataset"
        ),
        None,
    ),
)
_NATIVE_END = re.compile(
    r"^p?ncclComm(?:Abort|Destroy|Finalize)\b|^comm(?:Reclaim|Free)\b"
    r"|^c10d::ProcessGroupNCCL::(?:abort|abortCommsFromMap|shutdown|~ProcessGroupNCCL)\b"
    r"|^c10d::ProcessGroupGloo::~ProcessGroupGloo\b"
)
"""Functions that tear communicators down, as gdb and `py-spy --native` write them."""
_NATIVE_WAIT = re.compile(
    r"^(?:c10d::\S{0,80}?(Send|Recv|)\w{0,20}Work::(?:wait|synchronize)\b"
    r"|cu(?:da)?(?:Stream|Event|Device|Ctx)Synchronize\b)"
)
"""What a C function below a line of the training code waits in: a handle of torch.distributed, or the GPU."""
_HANDLES = {"Send": "isend", "Recv": "irecv"}
# A library that calls back into the training code (a data set, a file object, a compiler's back end) still does its own
# work. Only files that are on the stack while they do it: a compiled model runs below `_dynamo/eval_frame.py` forever.
_CALLERS: tuple[tuple[Doing, re.Pattern[str]], ...] = (
    (
        "compile",
        re.compile(r"torch/_dynamo/(?:convert_frame|output_graph|symbolic_convert)\.py$|torch/_inductor/compile_fx"),
    ),
    ("checkpoint", re.compile(r"torch/serialization\.py$|distributed/checkpoint/|safetensors/")),
    ("data", re.compile(r"torch/utils/data/(?:dataloader\.py$|_utils/)|/torchdata/|/webdataset/")),
)
_USER_SIGNS: tuple[tuple[Doing, re.Pattern[str]], ...] = (
    (
        "checkpoint",
        re.compile(
            r"checkpoint|ckpt|snapshot|save_pretrained|load_state|resume_from|state_dict"
            r"|(?:save|write|dump|export|persist|upload)_(?:model|weights?|params|state|shards?|optimizer)|(?:^|\.)save$",
            re.IGNORECASE,
        ),
    ),
    (
        "evaluation",
        re.compile(
            r"(?:^|_)(?:eval|evaluate|evaluation|validate|validation|valid|test_epoch|predict|generate|sample_images|inference|benchmark)(?:_|$)",
            re.IGNORECASE,
        ),
    ),
    (
        "preprocessing",
        re.compile(
            r"preprocess|tokeni[sz]e|build_(?:index|vocab|dataset_index)|download|prepare_data|pack_(?:sequences|data)|extract_features",
            re.IGNORECASE,
        ),
    ),
    (
        "data",
        re.compile(
            r"data_?loader|dataset|(?:^|_)loader|next_batch|get_batch|fetch|(?:next|open|load|read|get)_shard|^_?read_\w|^_?load_(?!state|model|weight|param|optim|adapter|module|check|ckpt|config|args|env|plugin|extension|library|kernel)\w|reader$|^(?:iter_|make_)?batches$|decode_(?:image|video|jpeg)|collate|prefetch|__getitem__",
            re.IGNORECASE,
        ),
    ),
    ("compile", re.compile(r"(?:^|_)(?:compile|autotune|jit)(?:_|$)", re.IGNORECASE)),
)
_BLOCKED: tuple[Doing, ...] = ("data", "checkpoint", "preprocessing", "storage")
"""What a rank that sleeps in it holds the others up with."""
_PRIMITIVES = frozenset({"threading.py", "queue.py", "queues.py", "synchronize.py", "subprocess.py", "popen_fork.py"})
_STEPS = frozenset({"__next__", "__iter__"})
"""What a training loop iterates over is its data."""
_STORAGE = re.compile(
    r"^(?:fsync|fdatasync|statvfs|flock|lockf|open_file|read_nfs|_nfs|nfs_|rpc_wait_bit|fuse_|ceph_|lustre_|ll_)"
)


def of_process(stack: ProcessStack) -> Activity:
    """What the main thread does; where it only waits for another thread, that is what it does."""
    thread = main_thread(stack) or (stack.threads[0] if stack.threads else None)
    activity = of_thread(thread) if thread is not None else Activity("unknown", None, None)
    if activity.doing == "unknown":
        # A debugger shows the C frames of all threads: one that tears the communicators down tells more.
        ends = (frame for each in stack.threads for frame in each.frames if _NATIVE_END.match(frame.function))
        end = next(ends, None)
        return activity if end is None else Activity("leaving", end, activity.place, idle=activity.idle)
    if activity.doing in _BLOCKED and thread is not None and _at_a_lock(thread, stack):
        inner = innermost_user_frame(thread)
        return activity if inner == activity.frame else Activity("user", inner, activity.place, idle=True)
    return activity


def of_unplaced(stacks: Sequence[ProcessStack]) -> list[Activity]:
    """What processes do of which nothing says who they are."""
    found = {i: of_native(of_process(stack), stack) for i, stack in enumerate(stacks)}
    return list(at_one_line(found, dict(enumerate(stacks))).values())


def _at_a_lock(thread: ThreadStack, stack: ProcessStack) -> bool:
    """Whether it sleeps at the line of the training code at which another thread of the process sleeps too: whoever
    holds the lock, what called this far out is not what it waits for."""
    inner = thread.frames[0] if thread.frames else None
    if inner is None or thread.state != "idle" or not is_user_frame(inner):
        return False
    others = (each for each in stack.threads if each is not thread and each.state == "idle" and each.frames)
    return any((each.frames[0].file, each.frames[0].line) == (inner.file, inner.line) for each in others)


def may_compute(activity: Activity, stack: ProcessStack) -> bool:
    """It waits for backward while a thread of it runs: that computes, or waits for the GPU, which looks the same."""
    backward = activity.frame is not None and _bare(activity.frame) in _BACKWARD
    return backward and any(thread.state in _RUNS for thread in stack.threads if not thread.main)


def runs(stack: ProcessStack) -> bool:
    """Whether its main thread was on a processor when it was looked at."""
    thread = main_thread(stack)
    return thread is not None and thread.state in _RUNS


def of_moving(activity: Activity, stack: ProcessStack) -> Activity:
    """The same of a rank that is known to move on: what it waits for is its own GPU, again and again."""
    thread = main_thread(stack)
    if activity.doing != "waiting" or activity.collective or thread is None:
        return activity
    user = innermost_user_frame(thread)
    return activity if user is None else _by_user_code(thread.frames, user, activity.place, idle=False)


def in_native_code(stack: ProcessStack) -> bool:
    """Whether a line of the training code runs C code without the interpreter: it computes, or waits for the GPU, which
    keeps a processor busy too."""
    thread = main_thread(stack)
    inner = thread.frames[0] if thread is not None and thread.frames else None
    return thread is not None and thread.state == "active" and inner is not None and is_user_frame(inner)


def at_one_line(activities: Mapping[int, Activity], stacks: Mapping[int, ProcessStack]) -> dict[int, Activity]:
    """The same, where most ranks came by one way to one line, below which they are in C code, and others did not: those
    wait for their GPUs, and so does everybody else who is in C code, unless the code says that it does something else.
    No frame of Python shows it: `loss.item()` has none. As few as two are enough where all others are blocked, of two
    ranks one."""
    native = {rank: way(stacks[rank]) for rank in activities if in_native_code(stacks[rank])}
    (crowd, most), *_ = Counter(native.values()).most_common(1) or [((), 0)]
    if most < min(2, len(activities) - 1) or most == len(activities):
        return dict(activities)
    others = {rank: activity for rank, activity in activities.items() if native.get(rank) != crowd}
    blocked = all(a.idle and (a.doing in _BLOCKED or _in_primitive(stacks[rank])) for rank, a in others.items())
    if most * 2 <= len(activities) and not blocked:
        return dict(activities)
    waits = {rank for rank, way in native.items() if way == crowd or activities[rank].doing == "user"}
    return {r: replace(a, doing="waiting", presumed=True) if r in waits else a for r, a in activities.items()}


_ASKS_THE_GPU = frozenset({"item", "cpu", "tolist", "numpy", "synchronize"})


def at_sync_lines(
    activities: Mapping[int, Activity], stacks: Mapping[int, ProcessStack], names: NamesCalled
) -> dict[int, Activity]:
    """The same for a job on GPUs, where the code is known: who stands at a line that fetches a value from the GPU, with
    no call of Python below it, waits for its GPU."""
    found = dict(activities)
    for rank, activity in activities.items():
        thread = main_thread(stacks[rank])
        inner = thread.frames[0] if thread is not None and thread.frames else None
        if activity.doing != "user" or inner is None or not is_user_frame(inner):
            continue
        called = {name for line, name, _ in names.get(inner.file, ()) if line == inner.line}
        if called & _ASKS_THE_GPU:
            found[rank] = replace(activity, doing="waiting", presumed=True)
    return found


def _in_primitive(stack: ProcessStack) -> bool:
    """Whether the main thread sleeps in a lock, queue or pipe of Python's own, in which no GPU is waited for."""
    thread = main_thread(stack)
    return thread is not None and bool(thread.frames) and thread.frames[0].file.rsplit("/", 1)[-1] in _PRIMITIVES


def way(stack: ProcessStack) -> tuple[tuple[str, int], ...]:
    """The lines of the training code through which the main thread came to where it is."""
    thread = main_thread(stack)
    return tuple((frame.file, frame.line) for frame in thread.frames if is_user_frame(frame)) if thread else ()


def of_native(activity: Activity, stack: ProcessStack) -> Activity:
    """The same with what C frames show: `work.wait()` in the training code has no frame of Python of its own."""
    thread = main_thread(stack)
    if thread is None or activity.frame is None or not is_user_frame(activity.frame):
        return activity
    for frame in thread.frames:
        if is_user_frame(frame):
            break
        if match := _NATIVE_WAIT.match(frame.function):
            return replace(activity, doing="waiting", frame=frame, collective=_HANDLES.get(match[1] or "", ""))
    return activity


def of_thread(thread: ThreadStack) -> Activity:
    return of_frames(thread.frames, innermost_user_frame(thread), idle=thread.state == "idle")


def of_frames(frames: Sequence[Frame], user: Frame | None = None, *, idle: bool = False) -> Activity:
    """Judge a stack, innermost frame first."""
    if not frames:
        return Activity("unknown", None, None)
    if user is None:
        user = next((frame for frame in frames if is_user_frame(frame)), None)
    place = CodePlace(user.file, user.line, user.function) if user else None
    frames = _without_imports(frames)
    storage = next((frame for frame in frames if _STORAGE.match(frame.function)), None)
    if storage is not None:
        return Activity("storage", storage, place, idle=idle)
    for at, frame in enumerate(frames):
        doing = _library_sign(frame)
        if doing is not None:
            return Activity(doing, frame, place, idle=idle)
        if is_user_frame(frame):
            break
        if _NATIVE_END.match(frame.function):
            return Activity("leaving", frame, place, idle=idle)
        if collective := _collective(frame):
            return Activity("waiting", frame, place, collective, idle)
        if _SYNC.match(_bare(frame)) and ("torch" in frame.file or "<" in frame.file):
            # torch's own collectives wait for their work within the same file.
            caller = frames[at + 1] if at + 1 < len(frames) and frames[at + 1].file == frame.file else None
            return Activity("waiting", frame, place, _collective(caller) if caller else "", idle)
    return _by_caller(frames, place, idle) or _by_user_code(frames, user, place, idle)


def _without_imports(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The same from the line outwards that imports a library: what that is for says nothing of what is done."""
    imports = [at for at, frame in enumerate(frames) if frame.file.startswith("<frozen importlib")]
    inner = imports[-1] + 1 if imports else 0
    return frames if any(map(is_user_frame, frames[:inner])) else frames[inner:] or frames


def _collective(frame: Frame) -> str:
    """The collective that a frame is of, or nothing."""
    if _IN_COLLECTIVE.match(_bare(frame)) and _COLLECTIVE_FILES.search(frame.file):
        return _bare(frame).removeprefix("_").removesuffix("_base")
    if any(frame.file.endswith(file) and function.match(_bare(frame)) for file, function in _GATHERS):
        return next((name for part, name in _SPREADS if part in frame.function), "all_gather")
    return ""


def _bare(frame: Frame) -> str:
    """The function without its class: py-spy writes `DistributedDataParallel.forward`."""
    return frame.function.rsplit(".", 1)[-1]


def _library_sign(frame: Frame) -> Doing | None:
    if _NATIVE_END.match(frame.function):
        return "leaving"
    for doing, file, function in _LIBRARY_SIGNS:
        if file.search(frame.file) and (function is None or function.search(_bare(frame))):
            return doing
    return None


def _by_caller(frames: Sequence[Frame], place: CodePlace | None, idle: bool) -> Activity | None:
    """The library that called the training code back, the innermost telling first."""
    for frame in frames:
        for doing, file in _CALLERS:
            if file.search(frame.file):
                return Activity(doing, frame, place, idle=idle)
    return None


def _by_user_code(frames: Sequence[Frame], user: Frame | None, place: CodePlace | None, idle: bool) -> Activity:
    """The names that the training code itself uses, from the inside out; what the script is called says nothing."""
    script = frames[-1].file if frames[-1].function == "<module>" else ""
    for frame in frames:
        if not is_user_frame(frame):
            continue
        file = "" if frame.file == script else frame.file.rsplit("/", 1)[-1].removesuffix(".py")
        words = f"{frame.function} {file}"
        for doing, pattern in _USER_SIGNS:
            if any(pattern.search(word) for word in re.split(r"[\s.]+", words) if word):
                return Activity(doing, frame, place, idle=idle)
        if _bare(frame) in _STEPS:
            return Activity("data", frame, place, idle=idle)
    return Activity("user" if user is not None else "unknown", user or frames[0], place, idle=idle)
