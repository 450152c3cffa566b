"""Tables of a host's state, line by line: df, ps, free, limits, mounts, /proc and cgroup files."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.records.host import UNLIMITED, FileSystem, HostProcess

_MOST_ROWS = 1 << 16
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_LIMITS = {
    "max locked memory": "memlock", "open files": "nofile", "max user processes": "nproc", "stack size": "stack",
    "core file size": "core", "max open files": "nofile", "max processes": "nproc", "max stack size": "stack",
    "max core file size": "core", "virtual memory": "as", "max address space": "as", "max memory size": "rss",
}  # fmt: skip
_LETTERS = {"l": "memlock", "n": "nofile", "u": "nproc", "s": "stack", "c": "core", "v": "as"}
_SHELL = re.compile(r"(?:-?\w?:? )?([a-z][a-z ]{3,30}?) {1,40}\((?:(\w{2,10}), )?-\w\) {1,4}(unlimited|\d{1,20})\s*$")
_SHELL_ONE = re.compile(r"ulimit -(?:H|S)?([lnuscv]) {0,3}[:=]? {0,3}(unlimited|\d{1,20})\s*$")
_PROC = re.compile(
    r"(Max [a-z ]{4,30}?) {2,40}(unlimited|\d{1,20}) {2,40}(?:unlimited|\d{1,20})(?: {2,40}(\w{1,12}))?\s*$"
)
_DF_HEAD = re.compile(r"Filesystem\s+(?:Type\s+)?(Inodes|1K-blocks|1024-blocks|1M-blocks|Size)\s")
_DF_ROW = re.compile(
    r"(\S{1,300})\s+(?:([a-z][\w.]{1,20})\s+)?([\d.]{1,20}[KMGTP]?|-)\s+([\d.]{1,20}[KMGTP]?|-)\s+(-?[\d.]{1,20}[KMGTP]?|-)\s+(\d{1,3}%|-)\s+(/\S{0,300})\s*$"
)
_DF_TAIL = re.compile(
    r"\s+([\d.]{1,20}[KMGTP]?)\s+([\d.]{1,20}[KMGTP]?)\s+([\d.]{1,20}[KMGTP]?)\s+(\d{1,3}%)\s+(/\S{0,300})\s*$"
)
_MEMINFO = re.compile(
    r"(MemTotal|MemFree|MemAvailable|SwapTotal|SwapFree|Shmem|Committed_AS|CommitLimit|Dirty):\s+(\d{1,18}) kB\s*$"
)
_FREE = re.compile(
    r"(Mem|Swap):\s+([\d.]{1,18}[KMGTP]?i?B?)\s+([\d.]{1,18}[KMGTP]?i?B?)\s+([\d.]{1,18}[KMGTP]?i?B?)(.{0,200})$"
)
_MOUNT = re.compile(r"(\S{1,300}) on (/\S{0,300}) type (\S{1,32}) \((.{0,600})\)\s*$")
_CGROUP = re.compile(
    r"(oom_kill|oom_group_kill|oom|max|high|low|nr_periods|nr_throttled|throttled_usec|throttled_time|usage_usec|nr_bursts"
    r"|under_oom|oom_kill_disable) (\d{1,20})\s*$"
)
_CGROUP_OWN = ("oom_kill", "nr_throttled", "nr_periods", "throttled_usec", "throttled_time", "under_oom")
_UNAME = re.compile(r"Linux (\S{1,253}) \d{1,2}\.\d{1,3}\.\S{1,80} ")
_HOSTNAME = re.compile(r"(?:\s{0,20}Static hostname: |hostname: |HOSTNAME=)([\w.-]{1,253})\s*$")
_STATUS = re.compile(r"(Name|State|Tgid|Pid|PPid):\t(.{1,100})$")


def octets(text: str, unit: int = 1) -> int | None:
    """`1.5G`, `64M`, `65536` (times the table's unit)."""
    match = re.match(r"(\d{1,18}(?:\.\d{1,6})?)([KMGTP]?)i?B?$", text)
    if not match:
        return None
    return int(float(match[1]) * (_UNITS[match[2]] if match[2] else unit))


class Tables(Struct):
    """All that a file says, gathered line by line."""

    limits: dict[str, int] = field(default_factory=dict)
    file_systems: list[FileSystem] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    processes: list[HostProcess] = field(default_factory=list)
    cgroup: dict[str, int] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Key of a limit, a counter or a memory value -> line and words."""
    host: str | None = None
    status: dict[str, str] = field(default_factory=dict)
    _unit: int = 0
    _inodes: bool = False
    _ps: tuple[str, ...] = ()
    _free: int = 1024
    _device: str = ""

    def feed(self, number: int, line: str) -> None:
        """One line; each kind of table knows its own."""
        if not line.strip():
            self._unit, self._ps = 0, ()
            return
        for take in (self._df, self._ps_row, self._limit, self._memory, self._mount, self._cgroup, self._status):
            if take(number, line):
                return
        if match := _UNAME.match(line) or _HOSTNAME.match(line):
            self.host = self.host or match[1]

    def _df(self, number: int, line: str) -> bool:
        if head := _DF_HEAD.match(line):
            self._inodes = head[1] == "Inodes"
            self._unit = 1 if self._inodes or head[1] == "Size" else 1 << 20 if head[1] == "1M-blocks" else 1 << 10
            return True
        if not self._unit:
            return False
        if match := _DF_ROW.match(line):
            device, size, free, used, path = match[1], match[3], match[5], match[6], match[7]
        elif match := _DF_TAIL.match(line):  # a long device name stands alone on the line above
            device, size, free, used, path = self._device, match[1], match[3], match[4], match[5]
        else:
            self._device = line.strip()[:300] if " " not in line.strip() else ""
            return bool(self._device)
        if len(self.file_systems) < _MOST_ROWS:
            percent = int(used[:-1]) if used.endswith("%") else None
            row = FileSystem(
                path, device, octets(size, self._unit), octets(free, self._unit), percent, self._inodes, number
            )
            self.file_systems.append(row)
        return True

    def _ps_row(self, number: int, line: str) -> bool:
        words = line.split()
        if "PID" in words and any(w in words for w in ("STAT", "S", "STATE")):
            self._ps = tuple(words)
            return True
        if not self._ps or len(words) < len(self._ps) - 1:
            return False
        row = dict(zip(self._ps, words, strict=False))
        pid, state = row.get("PID", ""), row.get("STAT") or row.get("S") or row.get("STATE") or ""
        if not pid.isdecimal() or len(pid) > 10 or not re.match(r"[RSDTtZIXW]", state):
            return False
        parent = row.get("PPID", "")
        rest = " ".join(words[len(self._ps) - 1 :])[:300]
        if len(self.processes) < _MOST_ROWS:
            known = int(parent) if parent.isdecimal() and len(parent) < 11 else None
            waits = row.get("WCHAN", "").strip("-")
            self.processes.append(HostProcess(int(pid), state[0], rest, known, waits, number))
        return True

    def _limit(self, number: int, line: str) -> bool:
        text = line.strip()
        if match := _SHELL_ONE.search(text[:200]):
            key, value, scale = (
                _LETTERS[match[1]],
                match[2],
                1024 if match[1] in "lsv" else 512 if match[1] == "c" else 1,
            )
        elif match := _SHELL.match(text):
            name = _LIMITS.get(match[1].strip())
            if name is None:
                return True
            key, value = name, match[3]
            scale = {"kbytes": 1024, "blocks": 512}.get(match[2] or "", 1)
        elif match := _PROC.match(text):
            name = _LIMITS.get(match[1].strip().lower())
            if name is None:
                return True
            key, value, scale = name, match[2], 1
        else:
            return False
        self.limits.setdefault(key, UNLIMITED if value == "unlimited" else int(value) * scale)
        self.places.setdefault(key, (number, text[:200]))
        return True

    def _memory(self, number: int, line: str) -> bool:
        if match := _MEMINFO.match(line):
            self.memory.setdefault(match[1], int(match[2]) * 1024)
            self.places.setdefault(match[1], (number, line.strip()))
            return True
        if match := _FREE.match(line):
            names = ("MemTotal", "MemFree") if match[1] == "Mem" else ("SwapTotal", "SwapFree")
            rest = match[5].split()
            found = {names[0]: match[2], names[1]: match[4]}
            if match[1] == "Mem" and len(rest) > 2:
                found["MemAvailable"] = rest[2]
            for name, word in found.items():
                value = octets(word.removesuffix("i").removesuffix("B").removesuffix("i"), self._free)
                if value is not None:
                    self.memory.setdefault(name, value)
                    self.places.setdefault(name, (number, line.strip()[:200]))
            return True
        return False

    def _mount(self, number: int, line: str) -> bool:
        match = _MOUNT.match(line)
        if not match:
            return False
        if len(self.mounts) < _MOST_ROWS:
            self.mounts.setdefault(match[2], f"{match[3]} ({match[4]})")
            self.places.setdefault(f"mount {match[2]}", (number, line.strip()[:300]))
        return True

    def _cgroup(self, number: int, line: str) -> bool:
        match = _CGROUP.match(line)
        if not match:
            return False
        self.cgroup.setdefault(match[1], int(match[2]))
        self.places.setdefault(match[1], (number, line.strip()))
        return True

    def _status(self, number: int, line: str) -> bool:
        match = _STATUS.match(line)
        if not match:
            return False
        if match[1] == "Name" and "State" in self.status:
            self.end_status()
        self.status.setdefault(match[1], match[2].strip())
        self.status.setdefault("line", str(number))
        return True

    def end_status(self) -> None:
        """A whole /proc/PID/status becomes a process."""
        pid, state = self.status.get("Pid", self.status.get("Tgid", "")), self.status.get("State", "")
        if pid.isdecimal() and len(pid) < 11 and state[:1].isalpha() and len(self.processes) < _MOST_ROWS:
            name, parent = self.status.get("Name", ""), self.status.get("PPid", "")
            known = int(parent) if parent.isdecimal() and len(parent) < 11 else None
            self.processes.append(HostProcess(int(pid), state[0], name, known, "", int(self.status["line"]) + 1))
        self.status = {}

    @property
    def own_cgroup(self) -> dict[str, int]:
        """The counters, where the file is surely one of a cgroup: `max 0` alone may be anything."""
        return self.cgroup if any(key in self.cgroup for key in _CGROUP_OWN) else {}
