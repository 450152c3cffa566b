"""Rehearsals with a CUDA build of torch: the stand-ins must answer there as they do with a CPU build.

Run on a machine with a GPU and this checkout: python3 tests/gpu/rehearse.py. Prints one JSON object; takes a minute.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "rehearse" / "programs"
EXPECTED = {
    "healthy_agreed_stop": None,
    "healthy_nano_gpt": None,
    "rank0_eval": "rank0-only-collective",
    "fsdp_clip": "conditional-collective",
    "ragged_gather": "size-mismatch",
}
PACKED = ROOT / "tests" / "samples" / "rehearse" / "second.txt"
"""Its healthy programs use what GPU scripts use: FSDP1, streams, pinned memory, autocast."""


def accepted(text: str, cause: str | None) -> set[str]:
    """Causes that the program's own header accepts: which call meets which depends on the numbers."""
    header = re.search(r"# truth: \S+ accept ?(.*)", text)
    return {cause, *(header[1].split() if header else ())} if cause else set()


def texts() -> dict[str, tuple[str, str | None]]:
    found = {name: ((PROGRAMS / f"{name}.py").read_text(), cause) for name, cause in EXPECTED.items()}
    parts = re.split(r"^=== (\S+)(?: (\S+))?\n", PACKED.read_text(), flags=re.MULTILINE)
    for name, causes, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if causes is None:
            found[name.removesuffix(".py")] = (text, None)
    return found


results = {}
END = time.monotonic() + 115
folder = Path(tempfile.mkdtemp())
for name, (text, cause) in texts().items():
    script, log = folder / f"{name}.py", folder / f"{name}.log"
    script.write_text(text)
    command = [sys.executable, "-m", "whichrank", "rehearse", "-n", "4", "--explore", "0", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    left = END - time.monotonic()
    if left < 5:
        results[name] = {"right": False, "error": "not reached within two minutes"}
        continue
    try:
        done = subprocess.run(
            [*command, "--log", log, script], capture_output=True, text=True, env=environment, timeout=left
        )
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        results[name] = {"right": False, "error": "ran past two minutes"}
        continue
    except ValueError:
        results[name] = {"right": False, "error": done.stderr[-500:]}
        continue
    causes = [finding["cause"] for finding in document["findings"]]
    wanted = accepted(text, cause)
    right = document["rehearsed"] and (causes[:1] and causes[0] in wanted if wanted else not causes)
    results[name] = {"right": bool(right), "causes": causes, "reason": document["reason"], "torch": document["torch"]}
    if not right:
        results[name]["messages"] = [finding["message"][:300] for finding in document["findings"]]
        results[name]["log"] = log.read_text(errors="replace")[-1500:] if log.exists() else ""
print(json.dumps({"right": all(one["right"] for one in results.values()), "programs": results}, indent=1))
