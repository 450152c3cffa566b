"""nvidia-smi's tables: `--query-gpu` CSV, the plain table, NVLink, topology; and its words instead of an answer."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from whichrank.evidence.readers.nvidia_smi.keys import COLUMNS, Draft, column
from whichrank.evidence.readers.nvidia_smi.report import moment
from whichrank.evidence.text.host_marks import host_above
from whichrank.records.hardware import NvLink

Lines = Sequence[tuple[int, str]]

_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,36}$")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d$")
_HOST = ("host", "hostname", "node", "nodename")
"""Columns that people add where they ask several hosts."""
_BEFORE = re.compile(r"([A-Za-z][\w.-]{1,62}): (?=\S[^,]{0,80}, )")
"""How pdsh and clush begin the rows of each host."""
_IDENTITY = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_QUERY = re.compile(r"--query-gpu=([\w.,]{1,4000})")
_PROCESS = re.compile(
    r"\| {1,6}(\d{1,4}) {1,6}(?:\S{1,6} {1,6}\S{1,6} {1,8})?(\d{1,10}) {1,8}(?:C|G|C\+G|M\+C) {1,6}\S"
)
_HEAD = re.compile(r"Driver Version: (\S{1,40}) {1,20}CUDA Version: (\S{1,20})")
_TROUBLE = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU) ?(?:(\d{1,4}): )?([0-9A-Fa-f:.]{7,16})?:? ?(.{1,120})"
)
_LINK_GPU = re.compile(
    r"\s*GPU (\d{1,4}): (.{1,80}?) \(UUID: (GPU-[0-9a-fA-F-]{8,36})\)|^\s*GPU (\d{1,4}): (\S.{1,80})$"
)
_LINK = re.compile(r"\s+Link (\d{1,3}): (.{1,80})$")
_LINK_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?) GB/s")
_LINK_COUNT = re.compile(r"([A-Za-z][A-Za-z0-9 _/-]{2,60}?) ?: (\d{1,20})$")


def parse_csv(lines: Lines) -> tuple[list[Draft], str, int | None, str]:
    """Rows of `--query-gpu`; the driver's version, the time, and what was missing."""
    titles: list[str] = []
    drafts: list[Draft] = []
    driver, taken, note = "", None, ""
    host: str | None = None
    for number, line in lines:
        host = host_above(line) or host
        if asked := _QUERY.search(line):
            titles = [column(word) for word in asked[1].split(",")]
            continue
        before = _BEFORE.match(line)
        row_of = line[before.end() :] if before else line
        cells = [cell.strip() for cell in next(csv.reader([row_of[:16384]], skipinitialspace=True), [])]
        known = [column(cell) for cell in cells]
        if sum(title in COLUMNS or title in _IDENTITY for title in known) > 1:
            titles = known
            continue
        if len(cells) < 2:
            continue
        draft = Draft(line=number, quote=line.strip())
        draft.host = before[1] if before else host
        if 1 < len(cells) <= len(titles):
            # Words of a comment may stand before the first title.
            row = dict(zip(titles[-len(cells) :], cells, strict=True))
            _fill(draft, row)
            driver, taken = driver or row.get("driver_version", "")[:40], moment(row.get("timestamp", "")) or taken
        else:
            note = "rows without a header: only UUIDs and addresses could be told"
            for cell in cells:
                _recognise(draft, cell)
        if (draft.uuid or draft.bus_id or draft.index is not None or draft.values) and len(drafts) < 65536:
            drafts.append(draft)
    return drafts, driver, taken, note


def _fill(draft: Draft, row: dict[str, str]) -> None:
    for title, cell in row.items():
        if title in _IDENTITY:
            _identify(draft, title, cell)
        elif title in COLUMNS:
            draft.put(COLUMNS[title], cell)
        elif title in _HOST:
            draft.host = cell[:253] or None


def _identify(draft: Draft, title: str, cell: str) -> None:
    if title == "index":
        draft.index = int(cell) if cell.isdecimal() and len(cell) < 5 else None
    elif title.endswith("uuid"):
        draft.uuid = cell[:64]
    elif _BUS.match(cell):
        draft.bus_id = cell


def _recognise(draft: Draft, cell: str) -> None:
    if _UUID.match(cell):
        draft.uuid = cell
    elif _BUS.match(cell):
        draft.bus_id = cell
    if cell.lower().strip("[]") in ("err!", "unknown error", "gpu is lost", "gpu requires reset"):
        draft.trouble = draft.trouble or cell


def parse_table(lines: Lines) -> tuple[list[Draft], str, str]:
    """The table that plain nvidia-smi prints; two or three rows per GPU."""
    drafts: dict[int, Draft] = {}
    driver = cuda = ""
    last: Draft | None = None
    for number, line in lines:
        cells = [cell.strip() for cell in line[:400].split("|")[1:-1]]
        if head := _HEAD.search(line[:400]):
            driver, cuda = head[1], head[2].rstrip("|")
        elif len(cells) == 3 and (draft := _first_row(cells, number, line)):
            last = drafts.setdefault(draft.index or 0, draft)
        elif len(cells) == 3 and last is not None:
            _second_row(last, cells)
            last = None
        elif (process := _PROCESS.match(line[:400])) and (draft := drafts.get(int(process[1]))):
            draft.pids.append(int(process[2]))
        if len(drafts) > 1024:
            break
    return list(drafts.values()), driver, cuda


def _first_row(cells: list[str], number: int, line: str) -> Draft | None:
    """`0  NVIDIA H100 80GB HBM3  On | 00000000:18:00.0 Off | 0`."""
    about, address, ecc = cells
    index, _, name = about.partition(" ")
    words = name.split()
    bus = address.split()
    if not index.isdecimal() or len(index) > 4 or not words or not bus or not _BUS.match(bus[0]):
        return None
    draft = Draft(index=int(index), bus_id=bus[0], line=number, quote=line.strip()[:400])
    if words[-1] in ("On", "Off", "N/A", "ERR!"):
        draft.put("persistence", {"On": "Enabled", "Off": "Disabled"}.get(words[-1], words[-1]))
        words = words[:-1]
    draft.put("name", " ".join(words).rstrip(". "))
    draft.put("ecc_unc_volatile", ecc)
    return draft


def _second_row(draft: Draft, cells: list[str]) -> None:
    """`N/A  30C  P0  69W / 700W | 2MiB / 81559MiB | 0%  Default`."""
    board, memory, load = (cell.replace("Unknown Error", "ERR!").replace("/", " ").split() for cell in cells)
    board = ["N/A", *board[2:]] if cells[0].startswith("N/A") else board  # the fan of boards without one
    keys = ("temperature", "pstate", "power_draw", "power_limit")
    values = [*zip(keys, board[1:], strict=False), *zip(("memory_used", "memory_total"), memory, strict=False)]
    for key, value in [*values, *zip(("utilization",), load, strict=False)]:
        draft.put(key, value)
    if sum(value == "ERR!" for _, value in values) > 1:
        draft.trouble = draft.trouble or "ERR!"


def parse_troubles(lines: Lines) -> list[Draft]:
    """GPUs that nvidia-smi could not speak to, by its own words."""
    found: list[Draft] = []
    host: str | None = None
    for number, line in lines:
        host = host_above(line) or host
        match = _TROUBLE.search(line)
        if match and len(found) < 1024:
            index = int(match[1]) if match[1] else None
            found.append(
                Draft(
                    host=host,
                    index=index,
                    bus_id=(match[2] or "").rstrip(":") or None,
                    trouble=match[3].strip(),
                    line=number,
                    quote=line.strip()[:400],
                )
            )
    return found


def parse_links(lines: Lines) -> list[Draft]:
    """`nvidia-smi nvlink -s` and `-e`: links with their rates or counters; `nvidia-smi -L`: the GPUs alone."""
    drafts: list[Draft] = []
    host: str | None = None
    for number, line in lines:
        host = host_above(line) or host
        if match := _LINK_GPU.match(line):
            index = int(match[1] or match[4])
            drafts.append(Draft(host=host, index=index, uuid=match[3], line=number, quote=line.strip()))
            drafts[-1].put("name", match[2] or match[5] or "")
        elif drafts and (match := _LINK.match(line)) and len(drafts) < 4096:
            draft, link = drafts[-1], int(match[1])
            old = draft.links.get(link, NvLink(link))
            if rate := _LINK_RATE.match(match[2]):
                draft.links[link] = NvLink(link, float(rate[1]), True, old.counters)
            elif "inactive" in match[2].lower():
                draft.links[link] = NvLink(link, None, False, old.counters)
            elif count := _LINK_COUNT.match(match[2].strip()):
                counted = {**old.counters, count[1].strip().lower(): int(count[2])}
                draft.links[link] = NvLink(link, old.rate, old.active, counted)
    return [draft for draft in drafts if draft.links or "(UUID: " in draft.quote]


def parse_topology(lines: Lines) -> tuple[dict[tuple[str, str], str], dict[str, str], int]:
    """Cells, the legend of adapters, and the line of the header."""
    cells: dict[tuple[str, str], str] = {}
    nics: dict[str, str] = {}
    header: list[str] = []
    at = 0
    for number, line in lines:
        words = line.split()
        if not words:
            continue
        if not header and words[0] == "GPU0" and (len(words) == 1 or words[1].startswith(("GPU", "NIC", "mlx", "CPU"))):
            header = [word for word in words if re.match(r"(?:GPU|NIC)\d{1,4}$|mlx\w{1,12}$", word)]
            at = number
        elif header and re.match(r"(?:GPU|NIC)\d{1,4}$|mlx\w{1,12}$", words[0]) and len(words) > len(header):
            for title, cell in zip(header, words[1:], strict=False):
                if len(cells) < 65536:
                    cells[words[0], title] = cell[:8]
        elif header and (match := re.match(r"(NIC\d{1,4}): (\S{1,32})$", line.strip())):
            nics[match[1]] = match[2]
    return cells, nics, at
