"""Put what the demo prints into the README, between its two marks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- diagnosis", "<!-- /diagnosis -->"


def main() -> int:
    command = [sys.executable, "-m", "whichrank", "diagnose", str(ROOT / "examples" / "skipped_collective")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 1:
        sys.stderr.write(told.stderr)
        return 1
    file = ROOT / "README.md"
    before, rest = file.read_text(encoding="utf-8").split(BEGIN, 1)
    mark, after = rest.split("\n", 1)[0], rest.split(END, 1)[1]
    file.write_text(f"{before}{BEGIN}{mark}\n```\n{told.stdout}```\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
