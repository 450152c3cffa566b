"""nvidia-smi: `-q` as text and XML, `--query-gpu` CSV, the plain table, `nvlink`, `topo -m`."""

from __future__ import annotations

import re

from whichrank.evidence.readers.nvidia_smi import report, tables
from whichrank.evidence.readers.nvidia_smi.keys import Draft, finish
from whichrank.evidence.readers.nvidia_smi.tables import Lines
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.prefixes.ansi import strip_ansi
from whichrank.evidence.text.text_file import chunks, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.hardware import GpuTopology

NAME = "nvidia_smi"

_MOST = 64 << 20
_LONGEST = 1 << 14
_REPORT = b"==NVSMI LOG=="
_PLAIN = re.compile(rb"\| NVIDIA-SMI \d|\|\s+GPU\s+Name\s+Persistence-M")
_CSV = re.compile(
    rb"^(?:.{0,2000}, ?)?(?:uuid|gpu_uuid|pci\.bus_id|index|utilization\.gpu \[%\]"
    rb"|temperature\.gpu|ecc\.errors\.\S{1,60}),",
    re.MULTILINE,
)
_CSV_ROW = re.compile(rb"^(?:\d{1,4}, ?)?(?:[^,\n]{1,60}, ?){0,2}GPU-[0-9a-f]{8}-[0-9a-f-]{27},", re.MULTILINE)
_LINKS = re.compile(rb"^[ \t]{1,40}Link \d{1,3}: (?:[\d.]{1,9} GB/s|<inactive>|\w[\w /-]{1,40}: \d)", re.MULTILINE)
_TOPOLOGY = re.compile(rb"^[^\w\n]{0,12}[ \t]{0,80}GPU0\s.{0,400}CPU Affinity", re.MULTILINE)
_LISTED = re.compile(rb"^GPU \d{1,3}: [^\n]{3,80} \(UUID: GPU-", re.MULTILINE)
_TABLES = (
    (b"(UUID: ", _LISTED),
    (b"| NVIDIA-SMI ", _PLAIN),
    (b"Persistence-M", _PLAIN),
    (b"Link ", _LINKS),
    (b"CPU Affinity", _TOPOLOGY),
    (b"GPU-", _CSV_ROW),
)
_COLUMNS = (b"uuid,", b"pci.bus_id,", b"index,", b"utilization.gpu [%],", b"temperature.gpu,", b"ecc.errors.")
_FAILED = (
    b"NVIDIA-SMI has failed because",
    b"Failed to initialize NVML",
    b"No devices were found",
    b"Unable to determine the device handle",
    b"GPU is lost",
)


def sniff(head: bytes, name: str) -> bool:
    """True for any output of nvidia-smi."""
    if not is_text(head):
        return False
    plain = re.sub(rb"\x1b\[[\d;]{0,16}m", b"", head) if b"\x1b" in head else head
    if _REPORT in plain or b"<nvidia_smi_log>" in plain or b"<!DOCTYPE nvidia_smi_log" in plain:
        return True
    if any(words in plain and shape.search(plain) for words, shape in _TABLES) or b"--query-gpu=" in plain:
        return True
    if any(words in plain for words in _COLUMNS) and _CSV.search(plain):
        return True
    return name.lower().startswith(("nvidia-smi", "nvidia_smi", "nvsmi")) and any(w in plain for w in _FAILED)


def read(item: Item) -> Reading:
    """One `GpuState` per GPU and moment; a `GpuTopology` where there is a matrix."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are too much for nvidia-smi")
    if b"<nvidia_smi_log>" in item.head():
        content = item.read()
        start = content.find(b"<nvidia_smi_log>")
        above = content[:start].count(b"\n")
        return _from_reports(item, [report.parse_xml(content[start:], above)])
    lines = _lines(item)
    text = [line for _, line in lines]
    records: list[object] = []
    notes: list[str] = []
    if any("==NVSMI LOG==" in line for line in text):
        reading = _from_reports(item, [report.parse_text(part) for part in _split(lines)])
        records += reading.records
        notes += [reading.note] if reading.note else []
    else:
        records += _from_tables(item, lines, notes)
    cells, nics, at = tables.parse_topology(lines)
    if cells:
        host = host_of_path(item.label)
        records.append(GpuTopology(Ref(item.label, f"line {at}", text[at - 1][:400], None, host), host, cells, nics))
    failed = [line.strip()[:160] for line in text if any(w.decode() in line for w in _FAILED)]
    notes += [f"nvidia-smi said: {failed[0]}"] if failed else []
    if not records:
        return Reading([], "unusable" if failed else "ignored", "; ".join(notes) or "no GPU in it")
    return Reading(records, "partial" if notes else "complete", "; ".join(notes))


def _from_tables(item: Item, lines: Lines, notes: list[str]) -> list[object]:
    host = host_of_path(item.label)
    table, driver, cuda = tables.parse_table(lines)
    troubled = tables.parse_troubles(lines)
    linked = tables.parse_links(lines)
    rows: list[Draft] = []
    taken = None
    if not table and not linked:
        rows, driver, taken, note = tables.parse_csv(lines)
        notes += [note] if note and rows else []
    drafts = [*table, *troubled, *linked, *rows]
    return [draft.state(item.label, host, taken, driver, cuda) for draft in drafts]


def _from_reports(item: Item, reports: list[report.Report]) -> Reading:
    host = host_of_path(item.label)
    records: list[object] = []
    whole = True
    for part in reports:
        whole = whole and part.whole
        drafts = finish(part.gpus)
        records += [d.state(item.label, host, part.taken_ns, part.driver, part.cuda) for d in drafts]
    unread = sum(1 for gpu in records if getattr(gpu, "unread", None))
    notes = [f"{unread} GPU(s) with values that could not be read"] if unread else []
    notes += [] if whole else ["the report is cut"]
    if not records:
        return Reading([], "unusable", "; ".join([*notes, "no GPU in it"]))
    return Reading(records, "partial" if notes else "complete", "; ".join(notes))


def _lines(item: Item) -> Lines:
    found: list[tuple[int, str]] = []
    for chunk in chunks(item.path):
        for line in chunk.splitlines():
            found.append((len(found) + 1, strip_ansi(line[:_LONGEST].decode("utf-8", "replace"))))
    return found


def _split(lines: Lines) -> list[Lines]:
    """One part per report: `nvidia-smi -q -l` and several hosts in one file repeat the heading."""
    starts = [i for i, (_, line) in enumerate(lines) if "==NVSMI LOG==" in line]
    return [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
