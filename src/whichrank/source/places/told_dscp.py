"""Traffic classes that the file itself calls a DSCP: the class is a whole byte, with the DSCP in its upper six bits."""

from __future__ import annotations

import re

from whichrank.records.settings import Clash, SettingsFile

_CLASSES = frozenset({"NCCL_IB_TC", "NCCL_IB_FIFO_TC", "UCX_IB_TRAFFIC_CLASS"})
_SAID = re.compile(r"(?:#|//)[^\n]{0,200}?\bDSCP[ =:]{1,3}(\d{1,2})\b", re.IGNORECASE)
_NAMED = re.compile(r"\b\w{0,40}DSCP\w{0,40}\b", re.IGNORECASE)
_HIGHEST = 63


def check(out: SettingsFile, text: str) -> None:
    """`NCCL_IB_TC=26` next to `# DSCP 26`, or made of a variable that is called so."""
    if "dscp" not in text.lower():
        return
    said = {int(match[1]) for match in _SAID.finditer(text)}
    for each in out.assignments:
        if each.name not in _CLASSES or not re.fullmatch(r"\d{1,2}", each.value or "") or each.how == "build":
            continue
        value = int(each.value or "0")
        by_name = _NAMED.search(each.ref.quote.partition("#")[0])
        computed = re.search(r"<<|\*", each.ref.quote.partition("=")[2]) if by_name else None
        if not 0 < value <= _HIGHEST or not (value in said or (by_name and not computed)):
            continue
        why = f"the traffic class is a whole byte with the DSCP in its upper six bits: {value} is DSCP {value >> 2}"
        clash = Clash(each.name, each.ref, why, f"Write {value << 2} for DSCP {value}.")
        if clash not in out.clashes:
            out.clashes.append(clash)
