"""Interfaces and devices of the hosts as a file's own comments tell them, and lists that exclude all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash, SettingsFile

_VARIABLES = frozenset({"NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NCCL_IB_HCA"})
_NAMES = re.compile(
    r"(?<![\w.-])(?:(?:eth|ib|bond|hsn|team|net|mlan|roce|rdma)\d{1,2}|en[opsx]\w{0,8}\d\w{0,4}"
    r"|(?:mlx[45]|bnxt_re|efa|irdma)_?\d{1,2})(?![\w-])"
)
_HAVE = re.compile(
    r"\b(?:have|has|with|are|only|both|two|three|four|each)\b[^\n]{0,60}\b(?:interface|NIC|device|network|HCA)s?\b"
    r"|\b(?:interface|NIC|device|HCA)s?\b[^\n]{0,40}(?::|\bare\b|=)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"\b(?:only|single|one|just|nothing but)\b", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:besides?|apart|other|plus|also|manage\w{0,5}|RDMA|data|storage)\b", re.IGNORECASE)
_OWNERS = re.compile(
    r"\b(?:pod|container|host|node|machine|VM)s?\b[^\n]{0,40}\b(?:have|has|see|get)s?\b", re.IGNORECASE
)
_VARIABLES_OF_IP = re.compile(r"\w+_IFNAME")
_TO_USE = re.compile(r"\b(?:use|take|over|through|via|stay on|goes? (?:on|to))\s+(?:only\s+|the\s+)?$", re.IGNORECASE)
_EXCLUDES = re.compile(
    r"\b(?:not|never|no|exclud\w{0,4}|skip\w{0,4}|ignor\w{0,4}|avoid\w{0,4}|without|except|leave|keep\w{0,3}|but)\b|n't\b",
    re.IGNORECASE,
)
_LONGEST, _MOST_ROWS = 400, 12


def check(out: SettingsFile, text: str) -> None:
    """`^eth0,ib0` below `# The nodes have two interfaces: eth0 (management) and ib0 (data). Use ib0.`"""
    lists = [a for a in out.assignments if a.name in _VARIABLES and (a.value or "").startswith("^")]
    if not lists:
        return
    blocks = list(comments(text))
    for each in lists:
        exact, names = (each.value or "").startswith("^="), (each.value or "").lstrip("^=").split(",")
        for line, last, said in blocks:
            found = list(dict.fromkeys(_NAMES.findall(said)))
            gone = [has for has in found if any(has == n if exact else n and has.startswith(n) for n in names)]
            wanted = _to_use(said, gone) if last in {each.ref.line - 1, each.ref.line} else ""
            alone = _ALONE.search(said) and not _OTHERS.search(said) and _VARIABLES_OF_IP.fullmatch(each.name)
            whole = len(found) > 1 or alone
            everything = whole and found and gone == found and _tells(said) and not _EXCLUDES.search(said)
            if wanted or everything:
                has = wanted or ", ".join(gone)
                why = f"^ holds for the whole list: it excludes {has}, which the comment names for the hosts"
                also = (Ref(out.label, f"line {line}", said[:300]),)
                clash = Clash(each.name, each.ref, why, "Name what to use, without ^.", also)
                if clash not in out.clashes:
                    out.clashes.append(clash)
                break


def _tells(said: str) -> bool:
    """The comment is about what the hosts have."""
    return bool(_HAVE.search(said) or _OWNERS.search(said))


def _to_use(said: str, gone: list[str]) -> str:
    """The name that the comment tells to use."""
    for match in _NAMES.finditer(said):
        before = said[max(0, match.start() - 40) : match.start()]
        if match.group() in gone and _TO_USE.search(before) and not _EXCLUDES.search(before):
            return match.group()
    return ""


def comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Comments of whole lines with their first and last line; those that follow one another are one."""
    rows: list[str] = []
    first = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        stripped = line.strip()
        if stripped.startswith(("#", "//")) and len(line) < _LONGEST and len(rows) < _MOST_ROWS:
            first = first or number
            rows.append(stripped.lstrip("#/ "))
            continue
        if rows:
            yield first, number - 1, " ".join(rows)
        rows, first = [], 0
        behind = re.search(r"\s#\s?([^#\n]{3,300})$", line[-_LONGEST:])
        if behind:
            yield number, number, behind[1]
