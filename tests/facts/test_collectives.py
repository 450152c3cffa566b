"""The table of collectives beside the torch that is installed."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from whichrank.facts.collectives import collectives
from whichrank.records.dump import Frame
from whichrank.timeline.job_state.activity import of_frames


def _communicating() -> set[str]:
    """Public functions of torch.distributed that log their failures: those that talk to other ranks."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "distributed" / "distributed_c10d.py"
    functions = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)]
    logged = {f.name for f in functions if any("_exception_logger" in ast.unparse(d) for d in f.decorator_list)}
    return {name for name in logged if not name.startswith("_")}


def test_what_torch_communicates_with_is_in_the_table():
    assert len(_communicating()) > 20
    assert _communicating() - set(collectives()) == set()


def test_a_rank_inside_of_it_is_seen_to_wait_in_it():
    file = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
    main = Frame("main", "/srv/job/train.py", 9)
    blocking = _communicating() - {"init_process_group", "new_group"}
    unseen = {name for name in blocking if not of_frames((Frame(name, file, 3000), main)).collective}
    assert unseen == set()
