"""A short profile of this rank, taken between optimizer steps, without a change of its code.

Copied into the job by `whichrank profile`: standard library and torch only. Everything is guarded: whatever goes wrong
ends the profile and never the job. torch.profiler is started and stopped on the thread that steps the optimizer, since
it records the thread that starts it; the file is written by a thread of its own.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

SETTINGS = "WHICHRANK_PROFILE"
"""The variable that carries the wishes into the job, as JSON."""
LAUNCHER = "torch.distributed.launcher.api"
LAST_S = 60.0
"""How long the end of a process waits for its profile to be written."""

_profile: Profile | None = None


class Profile:
    """One recording: it begins after some steps, lasts some steps (or seconds), and is written once."""

    def __init__(self, wishes: dict[str, Any]) -> None:
        self.folder = str(wishes["folder"])
        self.skip, self.steps = max(1, int(wishes["skip"])), int(wishes["steps"])
        self.seconds, self.most_bytes = float(wishes["seconds"]), int(wishes["most_bytes"])
        self.shapes, self.stacks, self.nvtx = bool(wishes["shapes"]), bool(wishes["stacks"]), bool(wishes["nvtx"])
        self.seen = 0
        self.stamps: deque[float] = deque(maxlen=8)
        self.usual: float | None = None
        self.first: int | None = None
        self.running: Any = None
        self.began = 0.0
        self.over = False
        self.writing: threading.Thread | None = None
        self.collecting: Any = None
        self.buckets: list[dict[str, Any]] = []
        self.sizing: _Sizes | None = None
        self.collectives: list[dict[str, Any]] | None = None
        self.save: Any = None

    def watch(self) -> None:
        """Wait until torch's optimizers are there, then count their steps."""
        while (module := _ready("torch.optim.optimizer")) is None:
            time.sleep(0.05)
        # It stays there to the end: torch raises an error in the job where a hook takes itself away before another one.
        module.register_optimizer_step_post_hook(self.stepped)

    def stepped(self, optimizer: Any, *_: object) -> None:
        """An optimizer has stepped; of several only the first one counts."""
        if self.over:
            return
        try:
            if self.first is None:
                self.first = id(optimizer)
            if id(optimizer) == self.first and not _compiling():
                self.seen += 1
                self.stamps.append(time.monotonic())
                self.turn()
        except Exception as error:  # noqa: BLE001 - a profile never disturbs what it looks at
            self.give_up(error)

    def turn(self) -> None:
        """What happens at this boundary between steps."""
        if self.running is not None:
            if not self.nvtx:
                if self.seen == self.skip + self.steps:
                    self.tell()
                self.running.step()
            late = self.began and time.monotonic() - self.began > self.seconds
            if self.seen >= self.skip + self.steps + (0 if self.nvtx else 2) or late:
                self.stop()
        elif self.seen == self.skip:
            self.start()
        elif self.seen == self.skip - 1 and not (self.nvtx or self.shapes or _on_device()):
            self.sizing = _Sizes()

    def tell(self) -> None:
        """Put into the profile how long steps take before and while this records, and how large collectives are."""
        now = _typical(self.stamps)
        told: dict[str, Any] = {"ddp_buckets": self.buckets} if self.buckets else {}
        told |= {"collectives": self.collectives} if self.collectives else {}
        if self.usual is not None and now is not None:
            told |= {"step_before_s": self.usual, "step_recorded_s": now}
        if told:
            self.running.add_metadata_json("whichrank", json.dumps(told))

    def start(self) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        torch: Any = sys.modules["torch"]
        if self.nvtx:
            self.running = _Ranges(torch, self.shapes)
            self.began = time.monotonic()
            return
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if _on_device() else [ProfilerActivity.CPU]
        sizing, self.sizing = self.sizing, None
        self.collectives = sizing.stop() if sizing is not None else None
        shapes = self.shapes or (self.collectives is None and not _on_device())
        self.usual = _typical(self.stamps)
        self.buckets = _ddp_buckets()
        # One step to warm up: the first start sets up the device's tracing, which must not be in the profile.
        plan = schedule(wait=0, warmup=1, active=self.steps, repeat=1)
        self.running = profile(
            activities=activities, schedule=plan, record_shapes=shapes, with_stack=self.stacks,
            on_trace_ready=lambda _: None, acc_events=True, experimental_config=_lean(),
        )  # fmt: skip
        self.running.start()
        self.began = time.monotonic()
        self.stamps.clear()
        self.mark()

    def mark(self) -> None:
        """The collector and checkpoints leave no mark of their own: give them one while this records."""
        import torch

        named = torch.profiler.record_function

        def collecting(phase: str, _info: object) -> None:
            if phase == "start":
                self.collecting = named("Python GC")
                self.collecting.__enter__()
            elif self.collecting is not None:
                self.collecting.__exit__(None, None, None)
                self.collecting = None

        self.on_collect = collecting
        gc.callbacks.append(collecting)
        self.save = original = torch.save

        def save(*arguments: Any, **named_arguments: Any) -> Any:
            with named("torch.save (checkpoint)"):
                return original(*arguments, **named_arguments)

        self.marked = torch.save = save

    def unmark(self) -> None:
        import torch

        if self.on_collect in gc.callbacks:
            gc.callbacks.remove(self.on_collect)
        if torch.save is self.marked:  # nobody has put another one there meanwhile
            torch.save = self.save

    def stop(self) -> None:
        """End the recording here, and write it elsewhere."""
        running, self.running = self.running, None
        if not self.nvtx:
            self.unmark()
        running.stop()
        self.over = True
        self.writing = threading.Thread(target=self.write, args=(running,), name="whichrank-profile", daemon=True)
        self.writing.start()

    def write(self, running: Any) -> None:
        try:
            name = f"{self.folder}/rank-{_rank()}"
            if self.nvtx:
                with open(f"{name}.nvtx", "w", encoding="utf-8"):  # noqa: PTH123
                    return
            draft = f"{self.folder}/.rank-{_rank()}.{os.getpid()}.json.gz"
            _export(running, draft)
            size = os.path.getsize(draft)  # noqa: PTH202
            if size > self.most_bytes:
                os.unlink(draft)  # noqa: PTH108
                raise OSError(f"the profile has {size >> 20} MiB, more than allowed; record fewer steps")
            os.replace(draft, f"{name}.json.gz")  # noqa: PTH105
        except Exception as error:  # noqa: BLE001 - a profile never disturbs what it looks at
            self.complain(error)

    def give_up(self, error: BaseException) -> None:
        self.complain(error)
        self.over = True
        running, self.running = self.running, None
        sizing, self.sizing = self.sizing, None
        try:
            if sizing is not None:
                sizing.stop()
            if running is not None:
                if not self.nvtx:
                    self.unmark()
                running.stop()
        except Exception:  # noqa: BLE001, S110 - the job goes on; that is all that counts
            pass

    def complain(self, error: BaseException) -> None:
        try:
            with open(f"{self.folder}/rank-{_rank()}.error.txt", "w", encoding="utf-8") as stream:  # noqa: PTH123
                stream.write(f"{type(error).__name__}: {error}\n")
        except OSError:
            pass

    def end(self) -> None:
        """The process ends: what is recorded is still worth having."""
        if self.running is not None:
            try:
                self.stop()
            except Exception as error:  # noqa: BLE001 - a profile never disturbs what it looks at
                self.complain(error)
        if self.writing is not None:
            self.writing.join(LAST_S)


class _Ranges:
    """NVTX ranges around all operators and collectives, for Nsight Systems.

    Not beside torch.profiler: it refuses to start where ranges are emitted, and CUPTI serves one tool at a time.
    """

    def __init__(self, torch: Any, shapes: bool) -> None:
        if not torch.cuda.is_available():
            raise OSError("NVTX ranges need a CUDA device")
        self.torch = torch
        self.ranges = torch.autograd.profiler.emit_nvtx(record_shapes=shapes)
        torch.cuda.profiler.start()  # for `nsys profile --capture-range=cudaProfilerApi`
        self.ranges.__enter__()

    def stop(self) -> None:
        self.ranges.__exit__(None, None, None)
        self.torch.cuda.profiler.stop()


class _Sizes:
    """How large the host's collectives (Gloo's) of one step are: they tell only where shapes are recorded.

    Shapes of all operators cost nearly as much as the rest of a recording. Here marks alone are recorded, with their
    shapes: Gloo's collectives are marks, and there are few others. (NCCL's kernels carry their sizes in any case.)
    """

    def __init__(self) -> None:
        self.end: Any = None
        try:
            from torch._C import _profiler

            autograd: Any = sys.modules["torch"]._C._autograd  # noqa: SLF001
            wanted = _profiler.ProfilerConfig(
                _profiler.ProfilerState.KINETO, True, False, False, False, False, _profiler._ExperimentalConfig()  # noqa: SLF001
            )  # fmt: skip
            kinds = {_profiler.ProfilerActivity.CPU}
            autograd._prepare_profiler(wanted, kinds)  # noqa: SLF001
            autograd._enable_profiler(wanted, kinds, {_profiler.RecordScope.USER_SCOPE})  # noqa: SLF001
            self.end = autograd._disable_profiler  # noqa: SLF001
        except Exception:  # noqa: BLE001, S110 - another torch: the profile records all shapes
            pass

    def stop(self) -> list[dict[str, Any]] | None:
        """Collectives in the order in which they began, in the words of torch's own profiles; None: can't tell."""
        if self.end is None:
            return None
        return [
            {"name": one.name(), "Input Dims": one.shapes(), "Input type": one.dtypes()}
            for one in sorted(self.end().events(), key=lambda one: one.start_ns())
            if one.name().startswith("gloo:")
        ]


def _export(running: Any, path: str) -> None:
    """Write the profile, compressed, beside the steps that follow.

    torch itself compresses line by line in Python: whoever holds the interpreter so long stops the training.
    """
    plain = f"{path}.plain"
    try:
        running.export_chrome_trace(plain)
        # On Linux a thread has a priority of its own. Not while it may hold the interpreter: others would wait for it.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with open(plain, "rb") as source, gzip.open(path, "wb", compresslevel=3) as packed:  # noqa: PTH123
            shutil.copyfileobj(source, packed, 1 << 20)
    finally:
        if os.path.exists(plain):  # noqa: PTH110
            os.unlink(plain)  # noqa: PTH108


def _on_device() -> bool:
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_available() and cuda.is_initialized())


def _lean() -> Any:
    """Nothing that only Python or a device would ask for later; None where torch does not know it yet."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(disable_external_correlation=not _on_device(), trace_only=True)
    except TypeError:
        return None


def _typical(stamps: Iterable[float]) -> float | None:
    """The median of the steps between these moments but for the first, which still settles; None for too few."""
    moments = list(stamps)[1:]
    steps = sorted(after - before for before, after in pairwise(moments))
    return steps[len(steps) // 2] if len(steps) > 1 else None


def _ddp_buckets() -> list[dict[str, Any]]:
    """What the buckets of the job's DDP model hold, in the order in which they are reduced.

    None where there are several models, since nothing tells their all-reduces apart, and before DDP has put its buckets
    into the order of the first backward pass.
    """
    module = _ready("torch.nn.parallel.distributed")
    try:
        kind = module.DistributedDataParallel
        kinds = [kind, *kind.__subclasses__()]
        # Objects refer to their class. One search takes about as long as a collection of garbage.
        (model,) = [one for one in gc.get_referrers(*kinds) if type(one) in kinds]
        told = model._get_ddp_logging_data()  # noqa: SLF001 - torch has no other way to ask
        names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        order = [one for one in model._module_parameters if one.requires_grad]  # noqa: SLF001
        if len(order) != told["num_parameter_tensors"]:
            return []
        sizes = told["rebuilt_bucket_sizes"].split(", ")
        places = told["rebuilt_per_bucket_param_indices"].split(", ")
        inside = [[order[int(place)] for place in row.split()] for row in places]
        return [
            {
                "bytes": int(size),
                "parameters": [names[id(one)] for one in row],
                "sizes": [one.numel() * one.element_size() for one in row],
            }
            for size, row in zip(sizes, inside, strict=True)
        ]
    except Exception:  # noqa: BLE001 - another torch keeps them elsewhere: the profile goes without
        return []


def _compiling() -> bool:
    compiler = sys.modules.get("torch.compiler")
    return bool(compiler is not None and compiler.is_compiling())


def _rank() -> str:
    c10d = _ready("torch.distributed.distributed_c10d")
    try:
        if c10d is not None and c10d.is_initialized():
            return str(c10d.get_rank())
    except Exception:  # noqa: BLE001, S110 - a group that is being taken down has no rank
        pass
    return os.environ.get("RANK", "0")


def _ready(name: str) -> Any:
    """A module that has been imported whole."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


class _Bell:
    """Notices the import of torch, finds nothing, and takes itself away."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == "torch" and _profile is not None:
            sys.meta_path.remove(self)
            threading.Thread(target=_watch, name="whichrank-profile-start", daemon=True).start()


def _watch() -> None:
    try:
        if _profile is not None and LAUNCHER not in sys.modules:
            _profile.watch()
    except Exception as error:  # noqa: BLE001 - a profile never disturbs what it looks at
        if _profile is not None:
            _profile.complain(error)


def begin() -> None:
    """Called before the first line of each Python process of the job."""
    global _profile  # noqa: PLW0603
    text = os.environ.get(SETTINGS)
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("OMPI_COMM_WORLD_RANK")
    if not text or _profile is not None:
        return
    wishes = json.loads(text)
    if rank is None and wishes["ranks"] is None:
        rank = "0"  # a job of one process
    if rank is None or not rank.isdecimal() or (wishes["ranks"] is not None and int(rank) not in wishes["ranks"]):
        return
    _profile = Profile(wishes)
    import atexit

    atexit.register(_profile.end)
    sys.meta_path.insert(0, _Bell())
