"""Where tests find evidence: the samples that ship with the project, and a larger collection that may be there."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "tests" / "samples"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))


@cache
def unpacked(name: str) -> Path:
    """An archive of the samples, unpacked once for all test processes of this checkout."""
    archive = SAMPLES / name
    digest = sha256(archive.read_bytes()).hexdigest()[:12]
    home = ROOT / ".pytest_cache" / "samples" / f"{archive.name.split('.')[0]}-{digest}"
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent))
        with tarfile.open(archive) as tar:
            tar.extractall(draft, filter="data")
        try:
            draft.rename(home)
        except OSError:  # another test process was faster
            shutil.rmtree(draft)
    return home


def recorded_cases() -> Path:
    """The recorded jobs with their truth."""
    return unpacked("recorded_cases.tar.xz")
