"""The kernel's messages that matter to a training job: the driver of the GPUs, PCIe, memory, disks, network."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, field

from whichrank.records.hardware import KernelKind, Value


class Told(Struct):
    """What one line says, before it is known when and where."""

    kind: KernelKind
    data: dict[str, Value] = field(default_factory=dict)
    device: str = ""
    pid: int | None = None
    process: str = ""


_BUS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
# `Xid (PCI:0000:17:00): 79, …`; MIG adds ` GPU-I:05 GPU-CI:00`; old drivers leave out `PCI:`.
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_BUS})((?: GPU-C?I:\d{{1,4}}){{0,2}})\): (\d{{1,5}})(?:, ?(.{{0,2000}}))?")
_XID_OTHER = re.compile(r"NVRM: Xid \(([^)]{1,80})\): (\d{1,5})(?:, ?(.{0,2000}))?")
_XID_PROCESS = re.compile(r"pid='?(\d{1,10}|<unknown>)'?(?:, name='?([^,']{1,64})'?)?")
_XID_BEFORE = re.compile(r"caused by previous Xid (\d{1,5})")
_XID_NVLINK = re.compile(r"\b(Fatal|Nonfatal|Non-fatal)\b.{0,40}?\bLink (-?\d{1,3})", re.IGNORECASE)
_XID_ANY_LINK = re.compile(r"\b[Ll]ink (-?\d{1,3})\b")
_SXID = re.compile(
    rf"(nvidia-nvswitch\d{{1,4}}): SXid \((?:PCI:)?({_BUS})\): (\d{{1,6}})(?:, (Fatal|Non-fatal|Nonfatal))?"
    r"(?:,? ?(.{0,400}))?",
    re.IGNORECASE,
)
_LOST = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({_BUS}): GPU has fallen off the bus")
# At its start the driver tells it in three lines, of which the first has the address and the last the fact.
_LOST_WHO = re.compile(rf"NVRM: The NVIDIA GPU ({_BUS})")
_LOST_FACT = re.compile(r"NVRM: (?:.{0,120} )?fallen off the bus and is not responding")
_INIT = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({_BUS}): RmInitAdapter failed! ?(\([^)]{{0,60}}\))?")
_NAMED = re.compile(rf"NVRM: GPU at (?:PCI:)?({_BUS}): (GPU-[0-9a-fA-F-]{{36}})")
_AER = re.compile(
    rf"({_BUS}): (?:AER: )?PCIe Bus Error: severity=([A-Za-z]{{5,16}})(?: \((Non-Fatal|Fatal)\))?(.{{0,80}})"
)
_AER_SHORT = re.compile(
    rf"({_BUS}): AER: (?:Multiple )?(Corrected|Correctable|Uncorrected|Uncorrectable)"
    r"(?: \((Non-Fatal|Fatal)\))? error (?:message )?received"
)
_PCIE_LIMITED = re.compile(
    rf"({_BUS}): (\d{{1,6}})(?:\.\d{{1,6}})? Gb/s available PCIe bandwidth, limited by "
    rf"([\d.]{{1,6}} GT/s PCIe x\d{{1,2}} link(?: at {_BUS})?) \(capable of (\d{{1,6}})"
)
# amdgpu, with the GPU's address before each line: `[gfxhub0] no-retry page fault (…`, then the status; whose it was
# stands in the first line, in newer kernels on a line of its own.
_PAGE_FAULT = re.compile(
    rf"amdgpu ({_BUS}): .{{0,24}}?"
    r"(?:\[\w{3,12}\] .{0,12}page fault \(|\b\w{0,4}VM_L2_PROTECTION_FAULT_STATUS:0x[0-9a-fA-F]{1,8})"
)
_PAGE_FAULT_OF = re.compile(rf"amdgpu ({_BUS}): .{{0,24}}? (?:for p|P)rocess (\S{{0,64}}) pid (\d{{1,10}}) thread ")
_PAGE_FAULT_WHOSE = re.compile(r", for process (\S{0,64}) pid (\d{1,10}) thread ")
_OOM = re.compile(
    r"(Out of memory|Memory cgroup out of memory)\b.{0,200}?[Kk]ill(?:ed)? process (\d{1,10}),? \(?([^)\s,]{1,64})\)?"
)
_OOM_VICTIM = re.compile(r"(Killed process) (\d{1,10}),? \(?([^)\s,]{1,64})\)?,? .{0,40}total-vm:")
_OOM_TABLE = re.compile(r"oom-kill:constraint=(\w{1,40}),.{0,1500}?task=([^,]{1,64}),pid=(\d{1,10})")
_OOM_INVOKED = re.compile(r"(\S{1,64}) invoked oom-killer: gfp_mask=")
_OOM_SIZE = re.compile(r"anon-rss:(\d{1,15})kB")
_SEGFAULT = re.compile(
    r"([^\s\[\]]{1,64})\[(\d{1,10})\]: segfault at \S{1,32} ip .{0,80}?error \w{1,8}(?: in ([^\s\[]{1,120}))?"
)
_TRAP = re.compile(
    r"traps: ([^\s\[\]]{1,64})\[(\d{1,10})\] (?:trap )?(general protection|invalid opcode|divide error|stack segment)"
    r".{0,120}?(?: in ([^\s\[]{1,120}))?(?:$|\[)"
)
_NET_LINK = re.compile(
    r"(?:\b(?P<driver>\w{2,16}) (?P<bus>[0-9a-fA-F:.]{7,16}) (?P<dev>[\w.-]{1,32})|\b(?P<plain>[\w.-]{1,32}))"
    r"(?::? NIC)?:? [Ll]ink (?:is )?(?P<how>[Dd]own|DOWN|[Uu]p|UP)\b"
)
_MLX_PORT = re.compile(
    r"(mlx[45]_\d{1,3})(?:/|: )?(?:port )?(\d{1,3})?.{0,40}?\b(?:link|port).{0,20}\b(down|up|DOWN|UP)\b"
)
_MLX_STATE = re.compile(r"(mlx[45]_\d{1,3}): Port:? (\d{1,3}) [Ll]ink (DOWN|[Dd]own|UP|[Uu]p|ACTIVE|[Aa]ctive)\b")
_BOND = re.compile(
    r"(bond\w{0,12}): .{0,60}?link status (?:definitely )?(down|up) for (?:active )?interface ([\w.-]{1,32})"
)
_MLX_FAULT = re.compile(
    r"mlx5_core (\S{7,16}):? (.{0,60}?(?:health compromised|device's health|insufficient power"
    r"|Port module event\[error\]"
    r"|High Temperature|cmd_work_handler.{0,30}timeout|firmware (?:internal )?error|Fatal error"
    r"|assert_exit_ptr|synd 0x|\) timeout\. Will cause a leak of a command resource).{0,160})"
)
_MLX_CABLE = re.compile(r"mlx5_core (\S{7,16}?):? .{0,60}?Port module event: module \d{1,3}, Cable (un)?plugged\b")
# The core's own watchdog, and those of other drivers.
_NIC_FAULT = re.compile(
    r"NETDEV WATCHDOG: (\S{1,32}) \(\w{1,24}\): (transmit queue \d{1,5} timed out.{0,40})"
    r"|\bena \S{7,16} (\S{1,32}): (Keep alive watchdog timeout)"
    r"|\bbnxt_en (\S{7,16}) .{0,40}?([Ff]irmware fatal.{0,60})"
)
_NFS = re.compile(r"(?:nfs: )?server (\S{1,253}) (not responding|OK)\b")
_LUSTRE = re.compile(
    r"Lustre(?:Error)?: .{0,120}?"
    r"(?:(?:Connection to (?=\S{1,120} .{0,80}was lost)|This client was evicted by )([^\s;]{1,120})"
    r"|(?<![\w-])(\w[\w-]{0,60}-(?:OST|MDT|MGS)[0-9a-f]{0,8})(?=-\w{2,4}-[0-9a-fx-]{4,40}: Connection restored to )"
    r"|Connection restored to (\S{1,120}))"
)
"""Newer clients say to which address a connection is restored; the server stands in the name of the device."""
_CEPH = re.compile(
    r"\b(?:libceph: ((?:mon|osd)\d{1,6})\b.{0,80}?\b(session lost|session established|down|up)\b"
    r"|ceph: (?:\[[^\]]{1,80}\]: )?(mds\d{1,4}) (hung|reconnect denied|recovery completed|caps renewed|came back))"
)
_CEPH_BACK = ("session established", "up", "recovery completed", "caps renewed", "came back")
_CIFS = re.compile(r"CIFS: VFS: (\S{1,120}) has not responded in \d{1,6} seconds")
_HUNG = re.compile(r"INFO: task (\S{1,64}):(\d{1,10}) blocked for more than (\d{1,7}) seconds")
_LOCKUP = re.compile(r"BUG: (?:soft|hard) lockup - CPU#\d{1,5} stuck for (\d{1,7})s! \[([^\]:]{1,64}):(\d{1,10})\]")
_DISK = re.compile(
    r"(blk_update_request: )?(?:critical \w{1,12} error|I/O error),? dev (\S{1,64})"
    r"|Buffer I/O error on dev(?:ice)? (\S{1,64}),"
    r"|EXT4-fs error \(device (\S{1,64})\)|XFS \((\S{1,64})\): .{0,60}(?:Corruption|shut ?down|I/O [Ee]rror)"
    r"|EXT4-fs \((\S{1,64})\): Remounting filesystem read-only"
    r"|nvme (\S{1,32}): .{0,40}(?:controller is down|I/O (?:tag )?\d{1,8} .{0,80}timeout|Removing after probe failure)"
)
_HOT_CPU = re.compile(r"(CPU\d{1,5}): (?:Core|Package) temperature (?:above threshold|is above threshold)")
_MCE = re.compile(
    r"mce: \[Hardware Error\]: .{0,200}|\[Hardware Error\]: (?:Machine check|event severity).{0,100}"
    r"|EDAC \w{1,16}: \d{1,9} UE .{0,120}"
)


def _xid(text: str) -> Told | None:
    match = _XID.search(text)
    if match:
        bus, mig, number, rest = match[1], match[2], match[3], match[4] or ""
    elif match := _XID_OTHER.search(text):
        bus, mig, number, rest = match[1], "", match[2], match[3] or ""
    else:
        return None
    told = Told("xid", {"code": int(number), "what": rest.strip()[:400]}, bus)
    if mig:
        told.data["mig"] = mig.strip()
    if process := _XID_PROCESS.search(rest):
        told.pid = int(process[1]) if process[1].isdigit() and int(process[1]) else None
        told.process = "" if process[2] in (None, "<unknown>") else process[2].strip()
    if before := _XID_BEFORE.search(rest):
        told.data["caused_by"] = int(before[1])
    if link := _XID_NVLINK.search(rest):
        told.data["fatal"] = int(link[1].lower() == "fatal")
        told.data["link"] = int(link[2])
    elif int(number) == 74 and (link := _XID_ANY_LINK.search(rest)):
        told.data["link"] = int(link[1])
    return told


def _sxid(text: str) -> Told | None:
    match = _SXID.search(text)
    if not match:
        return None
    data: dict[str, Value] = {"code": int(match[3]), "bus": match[2], "what": (match[5] or "").strip()}
    if match[4]:
        data["fatal"] = int(match[4].lower() == "fatal")
    if link := _XID_ANY_LINK.search(match[5] or ""):
        data["link"] = int(link[1])
    return Told("sxid", data, match[1])


def _lost(text: str) -> Told | None:
    if "Xid" in text:
        return None
    if match := _LOST.search(text):
        return Told("gpu_lost", {}, match[1])
    who = _LOST_WHO.search(text)
    return Told("gpu_lost", {}, who[1] if who else "") if _LOST_FACT.search(text) else None


def announced(text: str) -> str:
    """The GPU of which the next lines tell that it is lost."""
    match = _LOST_WHO.search(text)
    return match[1] if match else ""


def _page_fault(text: str) -> Told | None:
    match = _PAGE_FAULT.search(text)
    if not match:
        return None
    told = Told("gpu_page_fault", {}, match[1])
    if whose := _PAGE_FAULT_WHOSE.search(text):
        told.process, told.pid = whose[1], int(whose[2])
    return told


def _page_fault_of(text: str) -> Told | None:
    match = _PAGE_FAULT_OF.search(text)
    return Told("gpu_process", {}, match[1], int(match[3]), match[2]) if match else None


def _init(text: str) -> Told | None:
    match = _INIT.search(text)
    return Told("gpu_init_failed", {"reason": match[2] or ""}, match[1]) if match else None


def _named(text: str) -> Told | None:
    match = _NAMED.search(text)
    return Told("gpu_name", {"uuid": match[2]}, match[1]) if match else None


def _aer(text: str) -> Told | None:
    match = _AER.search(text) or _AER_SHORT.search(text)
    if not match:
        return None
    if match[2].lower().startswith("correct"):
        severity = "corrected"
    else:
        severity = "fatal" if match[3] == "Fatal" or match[2] == "Fatal" else "nonfatal"
    return Told("pcie_error", {"severity": severity, "what": match[0][len(match[1]) + 2 :][:160]}, match[1])


def _pcie_limited(text: str) -> Told | None:
    match = _PCIE_LIMITED.search(text)
    if not match:
        return None
    return Told("pcie_limited", {"gbps": int(match[2]), "able_gbps": int(match[4]), "what": match[3]}, match[1])


def _oom(text: str) -> Told | None:
    if table := _OOM_TABLE.search(text):
        inside = "MEMCG" in table[1]
        return Told("oom_kill", {"scope": "cgroup" if inside else "host"}, "", int(table[3]), table[2])
    match = _OOM.search(text) or _OOM_VICTIM.search(text)
    if not match:
        return None
    scope = "cgroup" if match[1].startswith("Memory cgroup") else "host"
    told = Told("oom_kill", {"scope": scope}, "", int(match[2]), match[3])
    if size := _OOM_SIZE.search(text):
        told.data["anon_kb"] = int(size[1])
    return told


def _oom_invoked(text: str) -> Told | None:
    match = _OOM_INVOKED.search(text)
    return Told("oom_invoked", {}, "", None, match[1]) if match else None


def _segfault(text: str) -> Told | None:
    if match := _SEGFAULT.search(text):
        data: dict[str, Value] = {"what": "segfault", "library": match[3] or ""}
        return Told("segfault", data, "", int(match[2]), match[1])
    if match := _TRAP.search(text):
        data = {"what": match[3], "library": match[4] or ""}
        return Told("segfault", data, "", int(match[2]), match[1])
    return None


def _link_is(word: str) -> KernelKind:
    return "link_up" if word.lower() in ("up", "active") else "link_down"


def _link(text: str) -> Told | None:
    if match := _BOND.search(text):
        return Told(_link_is(match[2]), {"bond": match[1]}, match[3])
    if match := _MLX_STATE.search(text):
        return Told(_link_is(match[3]), {}, f"{match[1]}/{match[2]}")
    at = text.find("mlx")
    if at >= 0 and (match := _MLX_PORT.match(text, at)):
        return Told(_link_is(match[3]), {}, f"{match[1]}/{match[2]}" if match[2] else match[1])
    at = max(text.lower().find("link is "), text.lower().find("link down"), text.lower().find("link up"))
    if match := _NET_LINK.search(text[max(0, at - 100) : at + 40]):
        device = match["dev"] or match["plain"] or ""
        if device.lower().startswith(("ata", "sata", "usb", "docker", "veth", "br-", "virbr", "cali", "lo")):
            return None
        return Told(_link_is(match["how"]), {"driver": match["driver"] or ""}, device.rstrip(":"))
    return None


def _nic(text: str) -> Told | None:
    if match := _MLX_CABLE.search(text):
        return Told("link_down" if match[2] else "link_up", {}, match[1])
    if match := _MLX_FAULT.search(text) or _NIC_FAULT.search(text):
        device, what = (part for part in match.groups() if part)
        return Told("nic_fault", {"what": what.strip()}, device.rstrip(":"))
    return None


def server_said(text: str) -> Told | None:
    """That a file server does not answer, or does again."""
    if match := _NFS.search(text):
        return Told("server_back" if match[2] == "OK" else "server_silent", {"server": match[1]})
    if match := _LUSTRE.search(text):
        return Told("server_silent" if match[1] else "server_back", {"server": match[1] or match[2] or match[3]})
    if match := _CEPH.search(text):
        server, state = (part for part in match.groups() if part)
        return Told("server_back" if state in _CEPH_BACK else "server_silent", {"server": server})
    if match := _CIFS.search(text):
        return Told("server_silent", {"server": match[1]})
    return None


def _hung(text: str) -> Told | None:
    match = _HUNG.search(text)
    return Told("hung_task", {"seconds": int(match[3])}, "", int(match[2]), match[1]) if match else None


def _lockup(text: str) -> Told | None:
    match = _LOCKUP.search(text)
    return Told("soft_lockup", {"seconds": int(match[1])}, "", int(match[3]), match[2]) if match else None


def _disk(text: str) -> Told | None:
    match = _DISK.search(text)
    if not match:
        return None
    device = next((part for part in match.groups()[1:] if part), "")
    return Told("io_error", {"what": match[0][:160]}, device.rstrip(",:"))


def _hot(text: str) -> Told | None:
    match = _HOT_CPU.search(text)
    return Told("cpu_throttled", {}, match[1]) if match else None


def _machine_check(text: str) -> Told | None:
    match = _MCE.search(text)
    if not match:
        return None
    return Told("machine_check", {"corrected": int("orrected" in text and "ncorrected" not in text)})


def _boot(text: str) -> Told | None:
    return Told("boot") if text.startswith("Linux version ") else None


Match = Callable[[str], Told | None]
MATCHERS: tuple[tuple[bytes, Match], ...] = (
    (b"NVRM: Xid", _xid),
    (b"SXid (", _sxid),
    (b"fallen off the bus", _lost),
    (b"page fault (", _page_fault),
    (b"VM_L2_PROTECTION_FAULT_STATUS:", _page_fault),
    (b"for process ", _page_fault_of),
    (b" Process ", _page_fault_of),
    (b"RmInitAdapter failed", _init),
    (b"NVRM: GPU at", _named),
    (b"PCIe Bus Error", _aer),
    (b"error received", _aer),
    (b"error message received", _aer),
    (b"available PCIe bandwidth, limited", _pcie_limited),
    (b"ill process", _oom),
    (b"illed process", _oom),
    (b"oom-kill:constraint", _oom),
    (b"invoked oom-killer", _oom_invoked),
    (b"segfault at", _segfault),
    (b"traps: ", _segfault),
    (b"link status", _link),
    (b"ink down", _link),
    (b"ink up", _link),
    (b"ink Down", _link),
    (b"ink Up", _link),
    (b"ink is down", _link),
    (b"ink is up", _link),
    (b"ink is Down", _link),
    (b"ink is Up", _link),
    (b"ink DOWN", _link),
    (b"ink UP", _link),
    (b"ink ACTIVE", _link),
    (b"mlx5_core", _nic),
    (b"NETDEV WATCHDOG", _nic),
    (b"Keep alive watchdog timeout", _nic),
    (b"irmware fatal", _nic),
    (b"not responding", server_said),
    (b"server ", server_said),
    (b"Lustre", server_said),
    (b"libceph: ", server_said),
    (b"ceph: mds", server_said),
    (b"]: mds", server_said),
    (b"has not responded in", server_said),
    (b"blocked for more than", _hung),
    (b"lockup - CPU", _lockup),
    (b"I/O error", _disk),
    (b"EXT4-fs error", _disk),
    (b"Remounting filesystem read-only", _disk),
    (b"XFS (", _disk),
    (b"nvme nvme", _disk),
    (b"critical medium error", _disk),
    (b"temperature above threshold", _hot),
    (b"temperature is above threshold", _hot),
    (b"[Hardware Error]", _machine_check),
    (b"EDAC MC", _machine_check),
    (b"Linux version ", _boot),
)
"""Words that must stand in the line, and what reads it then; the first that understands it counts."""
