"""CPU stand-ins for what a script asks of a GPU, so that GPU scripts run unchanged.

Tensors stay on the CPU whatever device is asked for. `torch.cuda` answers as a host with one GPU for each rank would.
Compiled kernels, CUDA graphs and libraries that need a real GPU are not followed.
"""

from __future__ import annotations

import contextlib
import functools
import os
from types import SimpleNamespace
from typing import Any

import torch

GIB = 1 << 30
LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
NEW = ("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor")


def on_cpu(device: Any) -> Any:
    """The device to use for the one that was asked for."""
    if isinstance(device, bool):
        return device
    if isinstance(device, int):
        return "cpu"
    kind = (
        device.type if isinstance(device, torch.device) else device.partition(":")[0] if isinstance(device, str) else ""
    )
    return "cpu" if kind in ("cuda", "xpu", "hpu", "npu", "mps") else device


class Stream:
    """Everything is done at once, in the order of the program."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    wait_stream = wait_event = synchronize = _nothing

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._nothing


class Event:
    """Has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        import time

        self.at = time.perf_counter()

    def wait(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1000.0


class _GeneratorKind(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorKind):  # type: ignore[misc]
    """torch.Generator(device="cuda") on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(device=on_cpu(device))


def properties(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name="rehearsed GPU", major=9, minor=0, total_memory=80 * GIB, multi_processor_count=132, warp_size=32,
        is_integrated=False, is_multi_gpu_board=False, max_threads_per_multi_processor=2048, uuid="", gcnArchName="",
        L2_cache_size=50 << 20, regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=233472,
    )  # fmt: skip


class State:
    gpus = 1
    device = 0


def set_device(device: Any) -> None:
    index = device.index if isinstance(device, torch.device) else device
    if isinstance(index, str):
        index = int(index.rpartition(":")[2]) if ":" in index else 0
    if index is not None and int(index) >= State.gpus:
        raise RuntimeError("CUDA error: invalid device ordinal")
    State.device = int(index or 0)


def install(gpus: int) -> None:
    """Called once, after torch and before anything that the script imports."""
    State.gpus = gpus
    answer_cuda()
    answer_accelerator()
    move_tensors()
    make_tensors()
    soften_libraries()


def answer_cuda() -> None:
    none: Any = lambda *_, **__: None  # noqa: E731
    zero: Any = lambda *_, **__: 0  # noqa: E731
    yes: Any = lambda *_, **__: True  # noqa: E731
    state = torch.empty(16, dtype=torch.uint8)
    answers: dict[str, Any] = {
        "is_available": yes, "is_initialized": yes, "is_bf16_supported": yes, "init": none, "_lazy_init": none,
        "device_count": lambda: State.gpus, "current_device": lambda: State.device, "set_device": set_device,
        "synchronize": none, "empty_cache": none, "ipc_collect": none, "reset_peak_memory_stats": none,
        "reset_max_memory_allocated": none, "memory_allocated": zero, "max_memory_allocated": zero,
        "memory_reserved": zero, "max_memory_reserved": zero, "memory_cached": zero, "memory_stats": lambda *_: {},
        "memory_summary": lambda *_, **__: "", "mem_get_info": lambda *_: (79 * GIB, 80 * GIB), "utilization": zero,
        "set_per_process_memory_fraction": none, "get_device_name": lambda *_: "rehearsed GPU",
        "get_device_capability": lambda *_: (9, 0), "get_device_properties": properties,
        "get_arch_list": lambda: ["sm_90"],
        "can_device_access_peer": yes, "Stream": Stream, "ExternalStream": Stream, "Event": Event,
        "current_stream": lambda *_: Stream(), "default_stream": lambda *_: Stream(), "set_stream": none,
        "stream": lambda *_: contextlib.nullcontext(), "device": lambda *_: contextlib.nullcontext(),
        "device_of": lambda *_: contextlib.nullcontext(), "manual_seed": none, "manual_seed_all": none, "seed": none,
        "seed_all": none, "initial_seed": zero, "get_rng_state": lambda *_: state.clone(), "set_rng_state": none,
        "get_rng_state_all": lambda: [state.clone()] * State.gpus, "set_rng_state_all": none,
        "is_current_stream_capturing": lambda: False, "_is_in_bad_fork": lambda: False,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, own(answer))
    torch.version.cuda = torch.version.cuda or "12.6"
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    torch.cuda.default_generators = (torch.default_generator,) * State.gpus
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, own(none))


def own(answer: Any) -> Any:
    """A function or class that is not used under another name: torch's compiler looks them up by identity."""
    if isinstance(answer, type):
        return type(answer.__name__, (answer,), {})

    def function(*args: Any, **options: Any) -> Any:
        return answer(*args, **options)

    return function


def answer_accelerator() -> None:
    module = getattr(torch, "accelerator", None)
    if module is None:
        return
    none: Any = lambda *_, **__: None  # noqa: E731
    answers: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: State.gpus, "set_device_index": set_device,
        "set_device_idx": set_device, "current_device_index": lambda: State.device, "synchronize": none,
        "current_device_idx": lambda: State.device, "current_stream": lambda *_: Stream(), "set_stream": none,
        "current_accelerator": lambda *_, **__: torch.device("cuda"), "empty_cache": none,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(module, name, own(answer))


def with_device(function: Any) -> Any:
    """The same function, with `device=` on the CPU and without pinned memory."""

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        if options.get("device") is not None:
            options["device"] = on_cpu(options["device"])
        if options.get("pin_memory"):
            options["pin_memory"] = False
        return function(*args, **options)

    return wrapper


def make_tensors() -> None:
    from torch.utils import _device

    constructors = _device._device_constructors()
    for name, function in list(vars(torch).items()):
        if name in LIKE or (callable(function) and _known(function, constructors)):
            setattr(torch, name, with_device(function))
    for name in NEW:
        setattr(torch.Tensor, name, with_device(getattr(torch.Tensor, name)))
    torch.Generator = Generator
    torch.set_default_device = lambda *_: None
    load = torch.load

    @functools.wraps(load)
    def load_on_cpu(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        del map_location
        return load(f, "cpu", *args, **options)

    torch.load = load_on_cpu


def _known(function: Any, constructors: Any) -> bool:
    try:
        return function in constructors
    except TypeError:
        return False


def move_tensors() -> None:
    to, clone = torch.Tensor.to, torch.Tensor.clone

    @functools.wraps(to)
    def moved(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if "device" in options:
            options["device"] = on_cpu(options["device"])
        if args and not isinstance(args[0], (torch.dtype, torch.Tensor)):
            args = (on_cpu(args[0]), *args[1:])
        return to(self, *args, **options)

    torch.Tensor.to = moved
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.Tensor.cpu = lambda self, *_, **__: clone(self)
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.Tensor.is_pinned = lambda _self, *_: False
    torch.Tensor.record_stream = lambda _self, *_: None


def soften_libraries() -> None:
    """Parts of torch that check for a GPU, or would spend minutes on what a rehearsal does not need."""
    from torch.nn.parallel import DistributedDataParallel

    _default(DistributedDataParallel, device_ids=None, output_device=None)
    _fsdp_on_cpu()
    _default(torch.autocast, 1, device_type="cpu", enabled=False)
    _default(torch.amp.GradScaler, 1, device="cpu")
    torch.compile = _not_compiled
    torch.nn.Module.compile = lambda self, *_, **__: None
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    _mesh_on_cpu()


def _fsdp_on_cpu() -> None:
    """FSDP takes the GPU that it is given by number, and frees parameters on the GPU that it has copied to the CPU."""
    from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param

    original: Any = FullyShardedDataParallel.__init__
    handle = _flat_param.FlatParamHandle

    @functools.wraps(original)
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "device_id": torch.device("cpu")})

    move: Any = handle.flat_param_to

    @functools.wraps(move)
    def moved(self: Any, *args: Any, **options: Any) -> None:
        move(self, *args, **options)
        self.flat_param.data = self.flat_param.data.clone()

    FullyShardedDataParallel.__init__ = init
    handle.flat_param_to = moved


def _not_compiled(model: Any = None, **_: Any) -> Any:
    return model if model is not None else (lambda function: function)


def _default(kind: Any, positional: int | None = None, **forced: Any) -> None:
    """Let the constructor of a class always get these arguments; `positional` of its own are dropped at most."""
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **options: Any) -> None:
        rest = args[positional:] if positional is not None else args[:1]
        if positional is not None and rest:
            rest = ()  # dtype, enabled and the like: given by place, and not needed on the CPU
        original(self, *rest, **{**{k: v for k, v in options.items() if k not in forced}, **forced})

    kind.__init__ = init


def _mesh_on_cpu() -> None:
    from torch.distributed import device_mesh

    make, kind = device_mesh.init_device_mesh, device_mesh.DeviceMesh
    original = kind.__init__

    @functools.wraps(make)
    def init_device_mesh(device_type: str, *args: Any, **options: Any) -> Any:
        return make(on_cpu(device_type), *args, **options)

    @functools.wraps(original)
    def init(self: Any, device_type: Any, *args: Any, **options: Any) -> None:
        original(self, on_cpu(device_type), *args, **options)

    kind.__init__ = init
    device_mesh.init_device_mesh = init_device_mesh
    torch.distributed.init_device_mesh = init_device_mesh
