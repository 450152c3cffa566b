"""Trees of machines that this one is not: the recorded report of an H200, /sys and /proc as such hosts have them."""

from __future__ import annotations

import re
from pathlib import Path

SAMPLE = Path(__file__).parents[1] / "samples/hardware/nvidia-smi-q.xml"
ACS = 0x000D


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def report(count: int, changes: dict[int, list[tuple[str, str]]] | None = None) -> str:
    """The recorded GPU, as often as wished, with other addresses and names; `changes` by GPU."""
    text = SAMPLE.read_text()
    head, _, rest = text.partition("<gpu id=")
    block, _, tail = rest.rpartition("</gpu>")
    blocks = []
    for number in range(count):
        one = block.replace("00000000:00:06.0", f"00000000:{number + 0x10:02X}:00.0")
        one = re.sub(r"GPU-[0-9a-f]{8}", f"GPU-{number:08x}", one)
        one = re.sub(r"<minor_number>\d+", f"<minor_number>{number}", one)
        for pattern, value in (changes or {}).get(number, []):
            changed = re.sub(pattern, value, one)
            assert changed != one, pattern
            one = changed
        blocks.append(f"<gpu id={one}</gpu>")
    return head.replace("<attached_gpus>1", f"<attached_gpus>{count}") + "\n".join(blocks) + tail


def machine(root: Path, gpus: int = 8, nics: int = 8, changes: dict[int, list[tuple[str, str]]] | None = None) -> Path:
    """A host of two sockets: GPU n and adapter n below one PCIe switch each."""
    write(root, "commands/nvidia-smi_-q_-x", report(gpus, changes))
    write(
        root,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release\n",
    )
    write(root, "proc/cpuinfo", "processor : 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n")
    write(root, "proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt\n")
    write(root, "proc/modules", "nvidia_peermem 16384 0 - Live 0x0\n")
    write(root, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    write(root, "proc/meminfo", "MemTotal: 2113000000 kB\nMemAvailable: 2000000000 kB\n")
    write(root, "proc/self/limits", LIMITS)
    write(root, "proc/self/status", "Cpus_allowed_list:\t0-191\n")
    write(root, "sys/devices/system/cpu/online", "0-191\n")
    write(root, "sys/devices/system/node/node0/cpulist", "0-95\n")
    write(root, "sys/devices/system/node/node1/cpulist", "96-191\n")
    write(
        root, "commands/dmesg", "[    0.000000] Linux version 6.8.0-45-generic\n[   12.000001] nvidia: module loaded\n"
    )
    for number in range(gpus):
        device(root, number, f"0000:{number + 0x10:02x}:00.0", "0x030200", "0x10de", "32.0 GT/s PCIe")
    for number in range(nics):
        device(root, number, f"0000:{number + 0x10:02x}:01.0", "0x020700", "0x15b3", "32.0 GT/s PCIe")
        port(root, f"mlx5_{number}")
    return root


def device(root: Path, number: int, address: str, kind: str, vendor: str, speed: str) -> None:
    bridge = f"0000:{number + 0x40:02x}:00.0"
    place = f"sys/devices/pci0000:{number:02x}/{bridge}/{address}"
    values = {
        "class": kind, "vendor": vendor, "current_link_speed": speed, "max_link_speed": speed,
        "current_link_width": "16", "max_link_width": "16", "numa_node": str(number // 4),
        "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0", "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
    }  # fmt: skip
    for name, value in values.items():
        write(root, f"{place}/{name}", f"{value}\n")
    if vendor == "0x15b3":
        (root / place / f"infiniband/mlx5_{number}").mkdir(parents=True, exist_ok=True)
    write(root, f"sys/devices/pci0000:{number:02x}/{bridge}/class", "0x060400\n")
    write(root, f"sys/devices/pci0000:{number:02x}/{bridge}/vendor", "0x1000\n")
    (root / f"sys/devices/pci0000:{number:02x}/{bridge}/config").write_bytes(config(0))
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    for name, target in ((address, place), (bridge, f"sys/devices/pci0000:{number:02x}/{bridge}")):
        if not (listed / name).is_symlink():
            (listed / name).symlink_to(root / target)


def config(control: int) -> bytes:
    """4 KiB of PCIe configuration space with one extended capability: ACS."""
    space = bytearray(4096)
    space[0x100:0x104] = (ACS | 1 << 16).to_bytes(4, "little")
    space[0x106:0x108] = control.to_bytes(2, "little")
    return bytes(space)


def port(root: Path, name: str, **changes: str) -> None:
    values = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand",
        "gids/0": "fe80:0000:0000:0000:946d:ae03:00b9:9bf6", "gid_attrs/types/0": "IB/RoCE v1",
        "counters/link_downed": "0", "counters/symbol_error": "0", "counters/excessive_buffer_overrun_errors": "15",
        **changes,
    }  # fmt: skip
    for file, value in values.items():
        write(root, f"sys/class/infiniband/{name}/ports/1/{file}", f"{value}\n")
    write(root, f"sys/class/infiniband/{name}/board_id", "MT_0000000838\n")


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             unlimited            unlimited            processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
