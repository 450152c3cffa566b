"""CPU time of `whichrank lint` beside pyflakes on the same 100,000 lines, and on one file of 1,000 lines.

    python benchmarks/lint.py [FOLDER]...

Without a folder the sources of torch.distributed, accelerate and others that are installed here are read. Bars: at
most 10 times pyflakes; one file of 1,000 lines within 300 ms above the start-up.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WANTED = 100_000
INSTALLED = ("accelerate", "torch.distributed", "torch.nn", "torch.optim", "torch.utils", "torch._inductor")


def cpu(*command: object) -> float:
    """User and system seconds of a child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(word) for word in command], capture_output=True, check=False, timeout=1200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def sources(folders: list[Path], into: Path) -> int:
    """Copy Python files until there are enough lines."""
    lines = 0
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            text = file.read_bytes()
            target = into / folder.name / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
            lines += text.count(b"\n")
            if lines >= WANTED:
                return lines
    return lines


def one_file(into: Path) -> Path:
    """A program of 1,000 lines that communicates a lot: a real one of the lab's size, repeated."""
    block = Path(__file__).parent.parent / "tests" / "samples" / "lint" / "third" / "04_eval_rank0_ddp_wrong.py"
    text = block.read_text()
    copies = -(-1000 // text.count("\n"))
    path = into / "thousand.py"
    path.write_text("\n".join(text.replace("def ", f"def f{number}_") for number in range(copies)))
    return path


def installed() -> list[Path]:
    found = []
    for name in INSTALLED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append(Path(next(iter(spec.submodule_search_locations))))
    return found


def main() -> None:
    folders = [Path(argument) for argument in sys.argv[1:]] or installed()
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        lines = sources(folders, tree)
        flakes = cpu(sys.executable, "-m", "pyflakes", tree)
        ours = cpu(sys.executable, "-m", "whichrank", "lint", tree, "--quiet")
        program = one_file(Path(scratch))
        empty = Path(scratch) / "empty.py"
        empty.write_text("")
        pairs = [[cpu(sys.executable, "-m", "whichrank", "lint", file) for file in (empty, program)] for _ in range(7)]
        start, single = map(statistics.median, zip(*pairs, strict=True))
    result = {
        "lines": lines,
        "pyflakes_cpu_s": round(flakes, 2),
        "lint_cpu_s": round(ours, 2),
        "times_pyflakes": round(ours / flakes, 2),
        "bar_times_pyflakes": 10,
        "file_of_1000_lines_ms": round((single - start) * 1000),
        "bar_file_ms": 300,
        "start_up_ms": round(start * 1000),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
