"""Where tests find evidence: the samples that ship with the project, and a larger collection that may be there."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "tests" / "samples"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))
