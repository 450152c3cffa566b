"""Count which letters follow which in identifiers: writes src/whichrank/facts/redaction/letter_pairs.txt.

Run it in an environment with torch and numpy: `python tools/letter_pairs.py`.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sysconfig
from pathlib import Path

from whichrank.facts.redaction.randomness import ALPHABET, OTHER, ZERO

TARGET = Path(__file__).parent.parent / "src" / "whichrank" / "facts" / "redaction" / "letter_pairs.txt"
TOKEN = re.compile(r"[A-Za-z0-9_+/=\-]{6,200}")
SYMBOL = re.compile(rb"_Z[A-Za-z0-9_]{6,200}")
RANDOM = re.compile(r"[0-9a-f]{16,}|[A-Za-z0-9+/]{60,}={0,2}")
LOWEST, HIGHEST = -40, 50


def names() -> set[str]:
    """Names in the sources of Python, numpy and torch."""
    folders = [Path(sysconfig.get_paths()["stdlib"])]
    for package in ("numpy", "torch"):
        spec = importlib.util.find_spec(package)
        folders += [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found: set[str] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py"))[:1500]:
            found.update(TOKEN.findall(path.read_text(encoding="utf-8", errors="replace")[:400_000]))
    return {name for name in found if not RANDOM.fullmatch(name)}


def symbols() -> set[str]:
    """Mangled names in torch's library."""
    spec = importlib.util.find_spec("torch")
    (folder,) = spec.submodule_search_locations if spec and spec.submodule_search_locations else [""]
    data = (Path(folder) / "lib" / "libtorch_python.so").read_bytes()
    return {symbol.decode() for symbol in SYMBOL.findall(data)}


def main() -> None:
    index = {sign: at for at, sign in enumerate(ALPHABET)}
    size = OTHER + 1
    counts = [[0.3] * size for _ in range(size)]
    for tokens, weight in ((names(), 1.0), (set(sorted(symbols())[:20_000]), 0.4)):
        for token in tokens:
            before = OTHER
            for sign in token:
                after = index.get(sign, OTHER)
                counts[before][after] += weight
                before = after
    lines = []
    for row in counts:
        bits = [round(10 * math.log2(count / sum(row) * size)) for count in row]
        lines.append("".join(chr(ZERO + max(LOWEST, min(HIGHEST, value))) for value in bits))
    TARGET.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
