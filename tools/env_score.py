"""Score `env lint` on a folder of launch files with labels.json: precision and recall, per format and in all.

A finding hits a fault in the same file, at most one line away, that names the same variable or kind.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from whichrank.flows.env.lint import lint, read_path
from whichrank.model.findings import Finding

KINDS = {
    "ENV101": "unknown-name", "ENV102": "never-read", "ENV103": "renamed", "ENV104": "wrong-version",
    "ENV105": "wrong-value", "ENV106": "wrong-value", "ENV107": "prefix", "ENV108": "wrong-value",
    "ENV109": "file-pattern", "ENV110": "entries-vs-bytes", "ENV111": "contradiction", "ENV113": "ranks-differ",
    "ENV115": "baked-in", "ENV116": "too-late", "ENV117": "lost-on-the-way",
}  # fmt: skip


def place(finding: Finding) -> tuple[str, int]:
    ref = finding.evidence[0]
    digits = re.search(r"\d+$", ref.locator)
    return Path(ref.source).name, int(digits.group()) if digits else 0


def hits(finding: Finding, fault: dict[str, object]) -> bool:
    file, line = place(finding)
    name = str(fault.get("variable") or "")
    if Path(str(fault["file"])).name != file or abs(int(str(fault["line"])) - line) > 1:
        return False
    return bool(name and re.search(rf"\b{re.escape(name)}\b", finding.message)) or KINDS.get(finding.code) == fault.get(
        "kind"
    )


def main() -> int:
    folder = Path(sys.argv[1])
    verbose = "-v" in sys.argv
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for entry in json.loads((folder / "labels.json").read_text()):
        path = folder / entry["path"]
        files = read_path(path)
        found = lint(files).findings
        loud = [f for f in found if f.severity != "info"]
        faults = entry.get("faults", [])
        format_ = entry.get("format") or files[0].kind
        right = [f for f in loud if any(hits(f, fault) for fault in faults)]
        heard = [fault for fault in faults if any(hits(f, fault) for f in loud)]
        quiet = [f for f in found if f.severity == "info"]
        row = table[format_]
        row[0] += len(right)
        row[1] += len(loud)
        row[2] += len(heard)
        row[3] += len(faults)
        row[4] += sum(not any(hits(f, fault) for fault in faults) for f in quiet)
        if not verbose:
            continue
        for f in loud:
            if f not in right:
                print(f"FALSE  {entry['path']}:{place(f)[1]} {f.code} {f.message}")
        for fault in faults:
            if fault not in heard:
                print(
                    f"MISSED {fault['file']}:{fault['line']} {fault.get('variable')} "
                    f"{fault.get('kind')}: {fault.get('why')}"
                )
        for f in quiet:
            print(f"info   {entry['path']}:{place(f)[1]} {f.code} {f.message}")
        for file in files:
            if file.unread:
                print(f"UNREAD {file.label}: {file.note}")
    total = [sum(column) for column in zip(*table.values(), strict=True)]
    for name, (right, loud, heard, faults, quiet) in [*sorted(table.items()), ("all", total)]:
        precision = f"{right / loud:.2f}" if loud else "  - "
        recall = f"{heard / faults:.2f}" if faults else "  - "
        print(
            f"{name:14} precision {precision} ({right}/{loud})  recall {recall} ({heard}/{faults})  stray infos {quiet}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
