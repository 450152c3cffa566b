"""What torch's desync report tells, in the words of torch/csrc/distributed/c10d/TraceUtils.h."""

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose

HEAD = (
    "[rank2]:[E1114 15:32:37.784530287 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 2]  failure "
    "detected by watchdog at work sequence id: 714 PG status: last enqueued work: 714, last completed work: 713\n"
    "[rank2]:[E1114 15:32:37.784743622 ProcessGroupNCCL.cpp:1936] Rank 2\n"
    "\t - [2] Timeout at collective: ALLREDUCE, #714\n"
)
DESYNC = "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
NEVER = (
    "\t - To our best knowledge, ranks [1] are the lagging ranks that caused this timeout. They never joined any "
    "collectives\n"
)
STATES = "\t - Snapshot of ranks' latest states:\n\t   #714 started ranks:\n\t     [0, 1, 2] started ALLREDUCE\n"


@pytest.mark.parametrize(
    ("words", "cause", "ranks"),
    [
        (f"{DESYNC}\t     [3] finished collective #713, but didn't join collective #714 (count from 1)\n{STATES}",
         "collective-desync", (3,)),
        (NEVER, "collective-desync", (1,)),
        (f"{DESYNC}\t     [0, 1, 3] finished collective #713, but didn't join collective #714 (count from 1)\n",
         "conditional-collective", (2,)),
        (f"{DESYNC}\t   - [0, 1, 2, 3] joined but didn't finish collective #714 (count from 1)\n",
         "collective-stalled", ()),
    ],
)  # fmt: skip
def test_who_is_behind(tmp_path, words, cause, ranks):
    verdict = diagnose([texts.write(tmp_path, {"job.log": HEAD + words})], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, ranks), verdict.summary


def test_numbers_within_a_group_name_nobody(tmp_path):
    words = HEAD.replace("[rank2]", "[rank6]") + f"{DESYNC}\t     [3] finished collective #713, but didn't join it\n"
    verdict = diagnose([texts.write(tmp_path, {"job.log": words})], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("collective-desync", ())
