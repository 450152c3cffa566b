"""Start jobs under `whichrank run` for real."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from tests.conftest import command_environment
from whichrank import report
from whichrank.lab.setup import free_port

HERE = Path(__file__).parent
JOB = HERE / "job.py"
SCHEMAS = Path(report.__file__).parent / "schemas"


@dataclass
class Done:
    """A watched job that has ended."""

    code: int
    stdout: str
    stderr: str
    out: Path
    seconds: float

    def document(self, name: str) -> dict[str, Any]:
        return json.loads((self.out / name).read_text())

    @property
    def verdict(self) -> dict[str, Any]:
        assert (self.out / "verdict.json").exists(), self.stderr
        return self.document("verdict.json")["verdict"]

    @property
    def alarms(self) -> dict[str, dict[str, Any]]:
        return {alarm["level"]: alarm for alarm in self.document("run.json")["alarms"]}

    @property
    def files(self) -> set[str]:
        return {file["path"] for file in self.document("bundle/manifest.json")["files"]}


def environment(**more: str) -> dict[str, str]:
    """Compiled modules may be kept: importing torch without them takes many seconds."""
    unwanted = ("NCCL_", "TORCH_", "GLOO_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in command_environment().items() if not name.startswith(unwanted)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def whichrank(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "whichrank", *map(str, arguments)]


def torchrun(*arguments: object, world: int = 4) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(world)]
    return [*launcher, "--master_port", str(free_port()), str(JOB), *map(str, arguments)]


def forked(script: Path, *arguments: object, world: int, options: tuple[str, ...] = ()) -> list[str]:
    """The same job at the cost of one import of torch: for tests that are not about the launcher."""
    launcher = [sys.executable, str(HERE / "fork_launcher.py"), *options]
    return [*launcher, str(world), str(script), *map(str, arguments)]


def run(command: list[str], out: Path, *options: str, limit_s: float = 240, **environ: str) -> Done:
    began = time.monotonic()
    done = subprocess.run(
        whichrank("run", "--out", out, *options, "--", *command),
        capture_output=True, text=True, timeout=limit_s, env=environment(**environ), check=False,
    )  # fmt: skip
    check_schemas(out)
    return Done(done.returncode, done.stdout, done.stderr, out, time.monotonic() - began)


def check_schemas(out: Path) -> None:
    """Whatever a run writes keeps its schema, in every test."""
    for name, file in (("run", "run.json"), ("manifest", "bundle/manifest.json"), ("diagnose", "verdict.json")):
        if (out / file).exists():
            schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
            jsonschema.Draft202012Validator(schema).validate(json.loads((out / file).read_text()))
