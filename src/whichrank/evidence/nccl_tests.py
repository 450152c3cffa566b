"""What nccl-tests print: the tables of every version by their own headings, and the JSON of `-J`.

Columns differ by version and test: `error` became `#wrong`, `root` and `redop` are missing in old ones, or their cells
are empty. Launchers put words before the lines, or tags into them. So the heading decides, never a fixed place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from whichrank.facts.hardware.bandwidth import bus_factor
from whichrank.model.errors import UnreadableError
from whichrank.records.bench import BenchResult, BenchRun

MOST = 64 << 20
_TAG = re.compile(r"^\s*(\[[\w.,:/-]{1,80}\](?:<std(?:out|err)>)?:?)")
_RANK = re.compile(r"\bRank\s+(\d+)(?: Group\s+\d+)? Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[\w:.]{1,20}\] (.{1,80}?)\s*$")
_NAMED = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoallv?|sendrecv|gather|scatter|reduce|hypercube)_perf\b"
)
_NAMES = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
_TYPES = {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "int8": "int8", "uint8": "uint8"}
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
_FAILED = re.compile(r"Test (NCCL|CUDA) failure .{0,200}")


def read(data: bytes, label: str, device: str = "") -> BenchRun:
    """A run out of one file; raises where there is no result in it."""
    if len(data) > MOST:
        raise UnreadableError(f"{label} is too large for output of nccl-tests")
    text = data.decode("utf-8", "replace")
    run = _from_json(text, label) if text.lstrip().startswith("{") else _from_text(text, label)
    if not run.results:
        failed = _FAILED.search(text)
        words = failed[0] if failed else "no line of results in it"
        raise UnreadableError(f"{label} is not output of nccl-tests: {words}", "Give what all_reduce_perf printed.")
    if device and not run.device:
        run = BenchRun(run.results, run.backend, device, run.hosts, origin=run.origin, nccl=run.nccl)
    return run


# -- text


def _from_text(text: str, label: str) -> BenchRun:
    lines = [_untagged(line) for line in text.splitlines()]
    ranks: dict[int, tuple[str, str]] = {}
    for line in lines:
        if match := _RANK.search(line):
            ranks[int(match[1])] = (match[2], match[3])
    hosts = tuple(ranks[rank][0] for rank in sorted(ranks))
    count = len(ranks) or _count_by_words(text)
    rows = list(_rows(lines))
    name = _NAMED.search(text) or _NAMED.search(label)
    bounds = _BOUNDS.search(text)
    results = [r for row in rows for r in _results(row, name[1] if name else "", count, bounds)]
    version = re.search(r"nccl-library=(\d{4,6})", text)
    device = next((ranks[rank][1] for rank in sorted(ranks)), "")
    return BenchRun(results, "nccl", device, hosts, nccl=_nccl(version[1]) if version else None, origin=label)


def _untagged(line: str) -> str:
    """Without the tag of a launcher (`[1,0]<stdout>:`), which may be repeated inside the line."""
    tag = _TAG.match(line)
    return line.replace(tag[1], " ").rstrip() if tag else line.rstrip()


def _rows(lines: list[str]) -> Iterator[dict[str, list[str]]]:
    """Column -> cells, of every line below a heading; the in-place half repeats the columns."""
    columns: list[str] = []
    for line in lines:
        words = line.split()
        if "algbw" in words and "busbw" in words and not {"size", "#size", "bytes"}.isdisjoint(words):
            first = next(n for n, word in enumerate(words) if word in ("size", "#size", "bytes"))
            columns = ["size", *("#wrong" if word == "wrong" else word for word in words[first + 1 :])]
        elif columns and len(words) >= 6 and (row := _cells(words, columns)):
            yield row


def _cells(words: list[str], columns: list[str]) -> dict[str, list[str]] | None:
    """The cells of a line, whatever stands before or behind them; None where it is no line of the table."""
    for empty in ((), ("redop",), ("redop", "root")):  # tests that reduce nothing left these cells empty
        wanted = [column for column in columns if column not in empty]
        for cells in (words[: len(wanted)], words[-len(wanted) :]):
            if len(cells) == len(wanted) and all(map(_fits, wanted, cells)):
                row: dict[str, list[str]] = {}
                for column, cell in zip(wanted, cells, strict=True):
                    row.setdefault(column, []).append(cell)
                return row
    return None


def _fits(column: str, cell: str) -> bool:
    if column in ("size", "count"):
        return cell.isdigit()
    if column in ("type", "redop"):
        return _number(cell) is None
    return column not in ("time", "cputime", "algbw", "busbw") or _number(cell) is not None or cell in ("N/A", "-")


def _results(row: dict[str, list[str]], name: str, ranks: int, bounds: re.Match[str] | None) -> Iterator[BenchResult]:
    octets = int(row["size"][0])
    times = row.get("time") or row.get("cputime") or []
    for number, (time, alg, bus) in enumerate(zip(times, row["algbw"], row["busbw"], strict=False)):
        time_us, algbw, busbw = _number(time), _number(alg), _number(bus)
        if time_us is None or algbw is None or busbw is None:
            continue
        operation, count = _operation(row, name, ranks, algbw, busbw)
        kind = row.get("type", [""])[0]
        yield BenchResult(
            _NAMES.get(operation, operation), octets, _TYPES.get(kind, kind), count, time_us, algbw,
            busbw, _right(row, number, bounds), in_place=number == 1,
        )  # fmt: skip


def _operation(row: dict[str, list[str]], name: str, ranks: int, algbw: float, busbw: float) -> tuple[str, int]:
    """The name where it is told; else by the ratio of the two bandwidths, which only some operations can have."""
    if name:
        return name, ranks
    ratio = busbw / algbw if algbw > 0.05 else 0.0
    redop, root = (row.get("redop") or ["none"])[0], (row.get("root") or ["-1"])[0]
    if redop != "none" and ratio > 1.02:
        return "all_reduce", ranks  # no other operation moves more than it delivers
    for candidate in ("all_reduce", "reduce_scatter") if redop != "none" else ("all_gather",):
        factor = bus_factor(candidate, ranks) if ranks else None
        if factor and ratio and abs(ratio / factor - 1) < 0.02:
            return candidate, ranks
    if ratio and abs(ratio - 1) < 0.01 and root != "-1":
        return ("broadcast" if redop == "none" else "reduce"), ranks
    return "unknown", ranks


def _right(row: dict[str, list[str]], number: int, bounds: re.Match[str] | None) -> bool | None:
    if "#wrong" in row:
        cells = row["#wrong"]
        wrong = _number(cells[number]) if number < len(cells) else None
        return None if wrong is None else wrong == 0
    # The error of old versions is a size, and only the test itself knows what is too much.
    return bounds[2] == "OK" if bounds and bounds[2] == "OK" else None


def _count_by_words(text: str) -> int:
    found = re.search(r"nThread (\d+) nGpus (\d+)", text)
    return int(found[1]) * int(found[2]) if found else 0


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _nccl(number: str) -> str:
    """22809 is 2.28.9; before 2.9 it was 2804 for 2.8.4."""
    value = int(number)
    return (
        f"{value // 10000}.{value // 100 % 100}.{value % 100}"
        if value >= 10000
        else f"{value // 1000}.{value // 100 % 10}.{value % 100}"
    )


# -- JSON


def _from_json(text: str, label: str) -> BenchRun:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"{label} is cut off or not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UnreadableError(f"{label} is JSON, but not of nccl-tests")
    given = document.get("config")
    config: dict[str, Any] = given if isinstance(given, dict) else {}
    devices = [d for d in config.get("devices") or [] if isinstance(d, dict)]
    ranks = len(devices)
    # Without MPI only the first device is written (nccl-tests 2.17-2.19): the number of GPUs is beside it.
    each = config.get("ngpus"), config.get("nthreads")
    if all(isinstance(number, int) for number in each):
        ranks = max(ranks, int(each[0] or 0) * int(each[1] or 0))
    told = " ".join(str(word) for word in document.get("args") or [])
    results = [r for row in document["results"] if isinstance(row, dict) for r in _json_results(row, told, ranks)]
    version = document.get("nccl_version")
    return BenchRun(
        results, "nccl", str(devices[0].get("device_info", "")) if devices else "",
        tuple(str(d.get("hostname", "")) for d in devices), origin=label,
        nccl=_nccl(str(version)) if isinstance(version, int) else None,
    )  # fmt: skip


def _json_results(row: dict[str, Any], told: str, ranks: int) -> Iterator[BenchResult]:
    match = _NAMED.search(f"{row.get('experiment_name', '')} {told}")
    name = match[1] if match else str(row.get("experiment_name") or "").removesuffix("_perf").lower()
    for key in ("out_of_place", "in_place"):
        cells = row.get(key)
        if not isinstance(cells, dict):
            continue
        time = cells.get("time", cells.get("cpu_time"))
        numbers: list[Any] = [time, cells.get("alg_bw"), cells.get("bus_bw")]
        if not all(isinstance(n, (int, float)) for n in numbers):  # "nan" is a string there
            continue
        wrong = cells.get("nwrong")
        right = wrong == 0 if isinstance(wrong, (int, float)) else None
        kind = str(row.get("type", ""))
        yield BenchResult(
            _NAMES.get(name, name) or "unknown", int(row.get("size") or 0), _TYPES.get(kind, kind), ranks,
            float(numbers[0]), float(numbers[1]), float(numbers[2]), right,
            in_place=key == "in_place",
        )  # fmt: skip
