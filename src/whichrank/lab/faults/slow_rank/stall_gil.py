"""One rank matches a regular expression that takes forever, with the interpreter's lock held."""

import re

CAUSE = "rank-stuck-in-user-code"
CATEGORY = "hang"
WORKLOAD = "ddp"


def inside(rank, point, value):
    if point == "batch" and rank.guilty and rank.due:
        rank.strike()
        strip_markup("<" * 60 + "!")


def strip_markup(text):
    return re.sub(r"(?:<+)+>", "", text)
