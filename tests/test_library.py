"""The page of the Python interface: its examples run, and it names what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import whichrank

PAGE = Path(__file__).parents[1] / "docs" / "library.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(words: str) -> str:
    return next(code for code in EXAMPLES if words in code)


def test_everything_public_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in whichrank.__all__ if f"whichrank.{name}" not in text and name != "__version__"] == []


def test_the_example_of_configure_runs(tmp_path: Path) -> None:
    code = example("configure(").replace("/scratch/me/run-17", str(tmp_path / "run")).replace("import torch\n", "")
    told = run(code + "\nimport os; print(os.environ['TORCH_DISTRIBUTED_DEBUG'])", tmp_path)
    assert told.strip()
    assert (tmp_path / "run").is_dir()


def test_the_example_of_checkpoint_runs(tmp_path: Path) -> None:
    given = "import torch\nstep, model = 3, torch.nn.Linear(2, 2)\n"
    code = given + example("checkpoint.latest") + "\nprint(checkpoint.latest('ckpt/').load()['step'])"
    assert run(code, tmp_path).strip() == "3"
