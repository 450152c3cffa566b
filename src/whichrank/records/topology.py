"""Which GPU reaches which adapter how, and which cable leads where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

PATHS = ("LOC", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, in NCCL's and nvidia-smi's words."""
MEANING = {
    "LOC": "the same device", "NVL": "NVLink", "PIX": "one PCIe switch", "PXB": "several PCIe switches, not the CPU",
    "PHB": "the PCIe host bridge of a CPU", "NODE": "host bridges of one NUMA node",
    "SYS": "the link between CPU sockets",
}  # fmt: skip


class HostTopology(Struct, frozen=True):
    """GPUs and adapters of one host."""

    gpus: Sequence[int] = ()
    nics: Sequence[str] = ()
    paths: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """(GPU, adapter) -> path."""
    between: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(GPU, GPU) -> path."""
    gdr: Mapping[str, bool] = field(default_factory=dict)
    """Adapter -> whether NCCL found GPUDirect RDMA usable; absent where nobody said."""
    source: str = ""
    host: str = ""


class CableEnd(Struct, frozen=True):
    """One end: `node01 mlx5_0` port 1, `leaf01` port 9."""

    node: str
    port: int
    is_switch: bool = False
    guid: str = ""

    def __str__(self) -> str:
        return f"{self.node} port {self.port}"


class Cable(Struct, frozen=True):
    a: CableEnd
    b: CableEnd
    speed: str = ""
    state: str = ""
    trouble: str = ""
    """`Could be …`: what iblinkinfo remarks."""


class RankPlace(Struct, frozen=True):
    """Where a rank's traffic enters the fabric."""

    rank: int
    host: str
    gpu: int | None
    adapter: str | None
    path: str | None
    cable: Cable | None

    def words(self) -> str:
        gpu = f" → GPU {self.gpu}" if self.gpu is not None else ""
        adapter = f" → {self.adapter}" + (f" ({self.path})" if self.path else "") if self.adapter else ""
        cable = f" → {self.cable.b}" if self.cable else ""
        return f"rank {self.rank} → {self.host}{gpu}{adapter}{cable}"
