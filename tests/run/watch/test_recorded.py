"""Bundles that were taken of NCCL jobs on a GPU: the verdict now is the verdict then."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from tests.evidence_at import SAMPLES
from whichrank import report
from whichrank.evidence.bundle import load
from whichrank.flows.diagnose.pipeline import diagnose

SCHEMAS = Path(report.__file__).parent / "schemas"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory):
    import tarfile

    folder = tmp_path_factory.mktemp("run_nccl")
    for name in ("run_nccl", "run_nccl_full"):
        with tarfile.open(SAMPLES / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("fault", "cause", "ranks"),
    [
        ("run_nccl/data", "rank-stuck-in-data-loading", (2,)),
        ("run_nccl/cross", "process-group-order", (2,)),
        ("run_nccl/sigstop", "rank-frozen", (2,)),
        ("run_nccl/exception", "rank-exception", (2,)),
        ("run_nccl_full/data", "rank-stuck-in-data-loading", (2,)),
        ("run_nccl_full/sigstop", "rank-frozen", (2,)),
    ],
)
def test_the_verdict(bundles, fault, cause, ranks):
    verdict = diagnose([bundles / fault], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, ranks), verdict.summary


@pytest.mark.parametrize("fault", ["data", "sigstop"])
def test_every_file_of_a_full_capture_is_understood(bundles, fault):
    bundle = bundles / "run_nccl_full" / fault
    sources = diagnose([bundle], jobs=1).coverage.sources
    assert {source.path for source in sources if source.quality not in ("complete", "ignored")} == set()
    read = {(source.path, source.reader) for source in sources if source.quality == "complete"}
    expected = {
        "ras/status.json": "nccl_ras", "host/gpus.before.csv": "nvidia_smi", "host/gpus.after.csv": "nvidia_smi",
        "host/nvidia-smi.txt": "nvidia_smi", "host/kernel_log.txt": "kernel_log", "host/sockets.rank_2.txt": "sockets",
        "last_words.json": "last_words", "stacks/rank_2.txt": "stacks",
    }  # fmt: skip
    assert expected.items() <= read


@pytest.mark.parametrize("fault", ["data", "sigstop"])
def test_the_manifest_tells_what_is_there(bundles, fault):
    bundle = bundles / "run_nccl_full" / fault
    manifest = load(bundle)
    jsonschema.validate(manifest, json.loads((SCHEMAS / "manifest.schema.json").read_text()))
    there = {p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()} - {"manifest.json"}
    assert {file["path"] for file in manifest["files"]} == there
    for file in manifest["files"]:
        assert hashlib.sha256((bundle / file["path"]).read_bytes()).hexdigest() == file["sha256"]
