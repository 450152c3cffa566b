"""Rehearsals with a CUDA build of torch: the stand-ins must answer there as they do with a CPU build.

Run on a machine with a GPU and this checkout: python3 tests/gpu/rehearse.py. Prints one JSON object; takes a minute.
"""

import json
import os
import subprocess
import sys
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

results = {}
for name, cause in EXPECTED.items():
    command = [sys.executable, "-m", "whichrank", "rehearse", "-n", "4", "--explore", "0", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, PROGRAMS / f"{name}.py"], capture_output=True, text=True, env=environment, timeout=150
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        results[name] = {"right": False, "error": done.stderr[-500:]}
        continue
    causes = [finding["cause"] for finding in document["findings"]]
    right = document["rehearsed"] and causes == ([cause] if cause else [])
    results[name] = {"right": right, "causes": causes, "reason": document["reason"], "torch": document["torch"]}
print(json.dumps({"right": all(one["right"] for one in results.values()), "programs": results}, indent=1))
