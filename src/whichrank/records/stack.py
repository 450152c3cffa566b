"""What the threads of a process were doing at one moment."""

from __future__ import annotations

import re
import sys
from typing import Literal

from msgspec import Struct

from whichrank.records.dump import Frame

ThreadState = Literal["active", "idle", "gil", "unknown"]

# Shown by py-spy with paths relative to site-packages, so that only the first folder tells a library.
_LIBRARIES = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "torchdata",
        "torchtitan",
        "functorch",
        "triton",
        "numpy",
        "pandas",
        "scipy",
        "sklearn",
        "pyarrow",
        "transformers",
        "accelerate",
        "datasets",
        "tokenizers",
        "peft",
        "trl",
        "deepspeed",
        "lightning",
        "pytorch_lightning",
        "lightning_fabric",
        "lightning_utilities",
        "ray",
        "composer",
        "streaming",
        "webdataset",
        "ignite",
        "apex",
        "xformers",
        "flash_attn",
        "transformer_engine",
        "fsspec",
        "s3fs",
        "gcsfs",
        "boto3",
        "botocore",
        "s3transfer",
        "urllib3",
        "requests",
        "aiohttp",
        "httpx",
        "httpcore",
        "h5py",
        "PIL",
        "cv2",
        "tqdm",
        "wandb",
        "mlflow",
        "tensorboard",
        "click",
        "rich",
        "yaml",
        "grpc",
        "google",
        "psutil",
        "huggingface_hub",
        "safetensors",
        "einops",
        "joblib",
        "dill",
        "multiprocess",
        "filelock",
        "sympy",
        "mpmath",
        "networkx",
        "numba",
        "nltk",
        "spacy",
        "sentencepiece",
        "tiktoken",
        "matplotlib",
        "pydantic",
        "omegaconf",
        "hydra",
        "zarr",
        "lmdb",
        "decord",
        "librosa",
        "soundfile",
        "timm",
        "bitsandbytes",
        "vllm",
        "sglang",
        "math_verify",
        "latex2sympy2_extended",
        "horovod",
        "jax",
        "jaxlib",
        "flax",
        "tensorflow",
        "keras",
    ]
)
# Modules of the standard library whose names scripts often carry too.
_COMMON_SCRIPT_NAMES = frozenset(
    [
        "test",
        "code",
        "cmd",
        "profile",
        "site",
        "this",
        "trace",
        "types",
        "calendar",
        "statistics",
        "token",
        "tokenize",
        "main",
    ]
)
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/", "\\site-packages\\", "/_whichrank_inside/")
_STANDARD_LIBRARY = re.compile(r"(?:^|[/\\])(?:lib|lib64|Lib)[/\\](?:python3(?:\.\d+)?[/\\])(?!site-|dist-)")
_TORCH_CHECKOUT = re.compile(r"/torch/(?:distributed|nn|cuda|autograd|utils|optim|multiprocessing|_\w+)[/.]")


class ThreadStack(Struct, frozen=True):
    """One thread; `frames` innermost first."""

    name: str
    tid: int | None
    state: ThreadState
    frames: tuple[Frame, ...]
    main: bool = False
    line: int = 0
    """Line of the file where this thread begins."""


class Handling(Struct, frozen=True):
    """An exception that a thread was handling: it is in `except`, `finally` or `__exit__`."""

    type: str
    text: str
    frame: Frame
    """Where it was raised: the deepest line of the training code on its way."""
    line: int = 0


class Call(Struct, frozen=True):
    """A call of torch.distributed by its arguments, where the tool shows them."""

    op: str
    word: str = ""
    """from or to, before the peer."""
    peer: int | None = None
    """A global rank."""
    ranks: tuple[int, ...] = ()
    """The members of the group that is made."""
    name: str = ""
    """The name of that group, which all members wait for."""


class ProcessStack(Struct, frozen=True):
    """One process at one moment, as a tool saw it."""

    source: str
    tool: Literal["py-spy", "faulthandler", "gdb", "pystack"]
    threads: tuple[ThreadStack, ...]
    pid: int | None = None
    host: str | None = None
    rank: int | None = None
    """Global rank, only where the file name or a line prefix says so."""
    local_rank: int | None = None
    command: str = ""
    python: str = ""
    taken_at: int | None = None
    """Nanoseconds, only where the evidence says so."""
    reason: str = ""
    """Why it was taken, where faulthandler says: "Fatal Python error: …", "Timeout (0:00:30)!"."""
    line: int = 0
    handling: Handling | None = None
    """What its main thread was handling, where `whichrank run` asked it."""
    call: Call | None = None
    """The call in which its main thread waits."""


_CRASHES = tuple(
    f"Fatal Python error: {what}"
    for what in ("Segmentation fault", "Bus error", "Illegal instruction", "Floating-point exception")
)


def is_crash(stack: ProcessStack) -> bool:
    """Whether it shows where the process crashed: no look at what it was held up in."""
    return stack.reason.startswith(_CRASHES)


def main_thread(stack: ProcessStack) -> ThreadStack | None:
    """The thread that runs the script."""
    return next((thread for thread in stack.threads if thread.main), None)


def has_native_frames(stack: ProcessStack) -> bool:
    """Whether C frames are in it, as `py-spy --native` and gdb show them."""
    thread = main_thread(stack)
    return thread is not None and any("::" in f.function or ".so" in f.file for f in thread.frames)


def is_user_frame(frame: Frame) -> bool:
    """True for Python code that is neither torch, a library, the standard library nor the import system."""
    file = frame.file
    if not file.endswith((".py", ".ipynb")) and not file.startswith(("<stdin", "<ipython", "<string")):
        return False
    if any(folder in file for folder in _LIBRARY_FOLDERS) or _STANDARD_LIBRARY.search(file):
        return False
    parts = file.replace("\\", "/").split("/")
    if parts[0] in ("", ".", "..") or ":" in parts[0]:
        return not _TORCH_CHECKOUT.search(file)
    top = parts[0].removesuffix(".py")
    if len(parts) > 1 and top in _LIBRARIES:
        return False
    standard = top in sys.stdlib_module_names and top not in _COMMON_SCRIPT_NAMES
    return not (standard and frame.function != "<module>")


def innermost_user_frame(stack: ProcessStack | ThreadStack) -> Frame | None:
    """The deepest line of the training code: of this thread, or of the main thread of this process."""
    thread = main_thread(stack) if isinstance(stack, ProcessStack) else stack
    if thread is None:
        return None
    return next((frame for frame in thread.frames if is_user_frame(frame)), None)
