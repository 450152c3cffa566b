"""Code in a ticket, and what it says beside the time-outs."""

from __future__ import annotations

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose

SAVE = """\
```python
def save(model, step):
    if dist.get_rank() == 0:
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
        torch.save(state, path)
```
"""


def ticket(tmp_path, name, sizes):
    lines = [texts.TIMED_OUT.format(r).replace("NumelIn=1,", f"NumelIn={size},") for r, size in enumerate(sizes)]
    said = "Our job hangs at the first checkpoint.\n\n"
    (tmp_path / name).write_text(f"{said}{SAVE}\n```\n{''.join(lines)}```\n")
    return diagnose([tmp_path], jobs=1).verdict


def test_the_condition_in_the_code_explains_that_rank_0_is_elsewhere(tmp_path):
    verdict = ticket(tmp_path, "ticket.md", (51, 54, 54, 54))
    assert (verdict.cause, verdict.culprits.ranks) == ("rank0-only-collective", (0,))
    assert verdict.confidence > 0.8


def test_without_the_structure_the_code_names_rank_0_less_surely(tmp_path):
    verdict = ticket(tmp_path, "ticket.md", (54, 54, 54, 54))
    assert (verdict.cause, verdict.culprits.ranks) == ("rank0-only-collective", (0,))
    assert verdict.confidence < 0.8


def test_a_readme_is_read_where_there_is_nothing_else(tmp_path):
    assert ticket(tmp_path, "README.md", (51, 54, 54, 54)).cause == "rank0-only-collective"
    (tmp_path / "job.log").write_text(texts.steps(30))
    assert diagnose([tmp_path], jobs=1).verdict.cause != "rank0-only-collective"
