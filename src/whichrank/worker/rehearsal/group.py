"""A process group whose every operation goes through the referee, with real values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from whichrank.worker.rehearsal import client
from whichrank.worker.rehearsal.values import fill, raw

Take = Callable[[bytearray], None]


class Pending(dist._Work):  # type: ignore[misc]
    """Calls that were handed in. Their results are written into the tensors when somebody waits."""

    def __init__(self, posted: Sequence[tuple[int, Take]], tensors: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.posted, self.tensors = list(posted), list(tensors)
        self.source = -1
        self.future: Any = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        while self.posted:
            number, take = self.posted[0]
            header, payload = client.connect().wait(number)
            take(payload)
            self.source = header.get("source", -1)
            self.posted.pop(0)
        return True

    def is_completed(self) -> bool:
        line = client.connect()
        if all(line.is_done(number) for number, _ in self.posted):
            return self.wait()
        # Whoever asks again and again waits: the referee has to know, and others need the processor.
        line.ask({"t": "poll", "ids": [number for number, _ in self.posted], "at": client.stack()})
        return all(line.is_done(number) for number, _ in self.posted) and self.wait()

    def is_success(self) -> bool:
        return not self.posted

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self.tensors

    def source_rank(self) -> int:
        return self.source

    def _source_rank(self) -> int:
        return self.source

    def get_future(self) -> Any:
        """Complete when it is given away: nobody is left who could complete it later."""
        if self.future is None:
            self.wait()
            self.future = torch.futures.Future()
            self.future.set_result(self.tensors)
        return self.future


def nothing(_payload: bytearray) -> None:
    """An operation without a result for this rank."""


def taking(outputs: Sequence[torch.Tensor]) -> Take:
    """Cut a result into these tensors."""

    def take(payload: bytearray) -> None:
        view, start = memoryview(payload), 0
        for tensor in outputs:
            size = tensor.numel() * tensor.element_size()
            fill(tensor, view[start : start + size])
            start += size

    return take


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def reduction(options: Any) -> str:
    """`SUM`, `MAX`…; torch's enumeration prints in several ways."""
    op = getattr(options, "reduceOp", None) or dist.ReduceOp.SUM
    inner = getattr(op, "op", op)
    return str(inner).rpartition(".")[2]


class RehearsedGroup(dist.ProcessGroup):  # type: ignore[misc]
    """One group of simulated ranks."""

    def __init__(self, rank: int, members: Sequence[int], name: str, backend: str, timeout_s: float) -> None:
        super().__init__(rank, len(members))
        self.members, self.label, self.backend = list(members), name, backend
        self.desc = "undefined"
        self.my_rank = rank
        hello = {"t": "group", "g": name, "members": self.members, "timeout": timeout_s, "backend": backend}
        client.connect().tell(hello)

    # What torch asks a group about itself.
    def size(self) -> int:
        return len(self.members)

    def rank(self) -> int:
        return self.my_rank

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "rehearsal"  # for "gloo" and "nccl" torch's own code looks for their C++ objects

    def getGroupName(self) -> str:  # noqa: N802
        return self.label

    @property
    def group_name(self) -> str:
        return self.label

    @property
    def group_desc(self) -> str:
        return self.desc

    @property
    def bound_device_id(self) -> None:
        return None

    @bound_device_id.setter
    def bound_device_id(self, _device: Any) -> None:
        """No device is bound: there is none."""

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, _device: Any) -> RehearsedGroup:
        return self

    def name(self) -> str:
        return self.backend

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def supports_coalescing(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """The referee counts."""

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def _has_hooks(self) -> bool:
        return False

    def _start_coalescing(self, _device: Any = None) -> None:
        """Every call is handed in by itself."""

    def _end_coalescing(self, _device: Any = None) -> Pending:
        return Pending([])

    def shutdown(self) -> None:
        """Nothing to close."""

    def abort(self) -> None:
        """Nothing to close."""

    # The operations.
    def post(
        self,
        op: str,
        inputs: Sequence[torch.Tensor] = (),
        outputs: Sequence[torch.Tensor] = (),
        **facts: Any,
    ) -> tuple[int, Take]:
        signature: dict[str, Any] = {"op": op, **facts}
        shown = [*inputs, *outputs]
        if shown:
            signature["dtype"] = dtype_of(shown[0])
            signature["out_bytes"] = size_of(outputs)
            signature.setdefault("count", sum(tensor.numel() for tensor in inputs))
        header = {"t": "call", "g": self.label, "sig": signature, "at": client.stack()}
        number = client.connect().post(header, [raw(tensor) for tensor in inputs])
        return number, taking(outputs) if outputs else nothing

    def root(self, opts: Any) -> int:
        root = int(opts.rootRank) if opts is not None else 0
        if not 0 <= root < len(self.members):
            raise ValueError(f"invalid root rank: {root} (expected 0 <= rank < {len(self.members)})")
        return root

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Pending:
        root = self.root(opts)
        mine = tensors if root == self.my_rank else []
        counts = sum(tensor.numel() for tensor in tensors)
        return Pending([self.post("broadcast", mine, tensors, root=root, count=counts)], tensors)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Pending:
        name = reduction(opts)
        return Pending([self.post("all_reduce", [t], [t], reduce=name) for t in tensors], tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Pending:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Pending:
        root = self.root(opts)
        out = tensors if root == self.my_rank else []
        return Pending([self.post("reduce", tensors, out, root=root, reduce=reduction(opts))], tensors)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Pending:
        posted = []
        for parts, tensor in zip(outputs, inputs, strict=False):
            posted.append(self.post("all_gather", [tensor], parts, outs=[part.numel() for part in parts]))
        return Pending(posted, [part for parts in outputs for part in parts])

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Pending:
        share = output.numel() // max(1, len(self.members))
        outs = [share] * len(self.members)
        return Pending([self.post("all_gather", [tensor], [output], outs=outs)], [output])

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Pending:
        return joined([self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    def allgather_coalesced(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Pending:
        columns = [[row[index] for row in outputs] for index in range(len(inputs))]
        return joined([self.allgather([column], [t], opts) for column, t in zip(columns, inputs, strict=True)])

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Pending:
        root = self.root(opts)
        out = outputs[0] if root == self.my_rank and outputs else []
        return Pending([self.post("gather", inputs, out, root=root, outs=[part.numel() for part in out])], out)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Pending:
        root = self.root(opts)
        parts = inputs[0] if root == self.my_rank and inputs else []
        ins = [part.numel() for part in parts]
        count = sum(tensor.numel() for tensor in outputs)
        return Pending([self.post("scatter", parts, outputs, root=root, count=count, ins=ins)], outputs)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Pending:
        posted = []
        for out, parts in zip(outputs, inputs, strict=True):
            ins = [part.numel() for part in parts]
            posted.append(self.post("reduce_scatter", parts, [out], reduce=reduction(opts), ins=ins, out=out.numel()))
        return Pending(posted, outputs)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Pending:
        ins = [tensor.numel() // max(1, len(self.members))] * len(self.members)
        facts = {"reduce": reduction(opts), "ins": ins, "out": output.numel()}
        return Pending([self.post("reduce_scatter", [tensor], [output], **facts)], [output])

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Pending:
        return joined([self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        out_splits: Any = None,
        in_splits: Any = None,
        opts: Any = None,
    ) -> Pending:
        facts = {"splits_in": self.splits(tensor, in_splits), "splits_out": self.splits(output, out_splits)}
        return Pending([self.post("all_to_all", [tensor], [output], count=0, **facts)], [output])

    def splits(self, tensor: torch.Tensor, given: Sequence[int] | None) -> list[int]:
        """Bytes for each member; torch gives the splits in rows."""
        rows = tensor.shape[0] if tensor.dim() else tensor.numel()
        row = size_of([tensor]) // max(1, rows)
        if given:
            return [count * row for count in given]
        share = size_of([tensor]) // len(self.members)
        return [share] * len(self.members)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Pending:
        facts = {"splits_in": [size_of([t]) for t in inputs], "splits_out": [size_of([t]) for t in outputs]}
        return Pending([self.post("all_to_all", inputs, outputs, count=0, **facts)], outputs)

    def barrier(self, opts: Any = None) -> Pending:
        return Pending([self.post("barrier")])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        Pending([self.post("barrier")]).wait()

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Pending:
        return self.pair("send", tensors, peer, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Pending:
        return self.pair("recv", tensors, peer, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Pending:
        return self.pair("recv", tensors, -1, tag)

    def pair(self, op: str, tensors: list[torch.Tensor], peer: int, tag: int) -> Pending:
        inputs, outputs = (tensors, []) if op == "send" else ([], tensors)
        count = sum(tensor.numel() for tensor in tensors)
        return Pending([self.post(op, inputs, outputs, peer=peer, tag=tag, count=count)], tensors)

    # Names of other versions of torch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def joined(works: Sequence[Pending]) -> Pending:
    """Several works as one."""
    posted = [one for work in works for one in work.posted]
    return Pending(posted, [tensor for work in works for tensor in work.tensors])
