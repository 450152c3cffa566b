"""What a host says of itself in a prolog or preflight, and which cause it is where one host says otherwise."""

from __future__ import annotations

import re

_SHARED = re.compile(r"(?i)\b(?:lustre|nfs\d?|gpfs|beegfs|ceph|weka\w*|efs|fsx|vast|daos|panfs)\b|@o2ib|@tcp|\S:/\S")
_LOCAL = re.compile(r"(?i)\b(?:xfs|ext[34]|btrfs|overlay|tmpfs|local|rootfs|zfs)\b|/dev/|\bnot mounted\b|\bmissing\b")
_VARIABLE = re.compile(r"\b(?:NCCL|TORCH|GLOO|UCX|FI|CUDA|OMP|MKL|PYTORCH|RDMAV|OFI)_[A-Z0-9_]+=")
_INTERFACE = re.compile(r"\b(?:NCCL|GLOO)_SOCKET_IFNAME=")
_TOPICS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "clock-skew",
        re.compile(
            r"(?i)\b(?:chrony\w*|ntp\w*|timesync\w*|ptp4l|phc2sys|clock (?:offset|skew)|time s(?:ou)?rce?\b"
            r"|stratum\b)"
        ),
    ),
    (
        "cpu-starved",
        re.compile(r"(?i)\bcpu\.max\b|\bcpuset\b|\bcpus?[-_ ](?:quota|limit|allowed|affinity|mask)|\baffinity\b"),
    ),
    ("memlock-ulimit", re.compile(r"(?i)\bmemlock\b|\bmax locked memory\b|\bulimit(?: \S{1,24}){0,6}? -l\b")),
    ("fd-limit", re.compile(r"(?i)\bnofile\b|\bopen files\b|\bulimit(?: \S{1,24}){0,6}? -n\b")),
    ("shm-too-small", re.compile(r"(?i)/dev/shm\b|\bshm(?:[-_ ]size)?\b")),
    (
        "mtu-mismatch",
        re.compile(
            r"(?i)\b(?:path[-_ ]?|p)?mtu\b|\bping(?:\d{4})?\b.*(?:-s \d{4}|-M do)\b(?:.*\b(?:loss|lost)\b)?|\bjumbo\b"
            r"|\bping\b.*\b(?:8[89]\d\d|9000)(?:B| ?bytes)?\b"
        ),
    ),
    ("disk-full", re.compile(r"(?i)\buse(?:d)?[ _]?%.{0,3}\b(?:9[89]|100)(?:%|\b)|\bdisk full\b")),
    ("hostname-resolution", re.compile(r"\b127\.0\.1\.1\b")),
    (
        "replica-divergence",
        re.compile(r"(?i)\b(?:resum|restor|load)\w{0,4}\b.{0,80}(?:ckpt|checkpoint|snapshot|step)\S{0,80}"),
    ),
    ("driver-mismatch", re.compile(r"(?i)\bdriver(?:_\w{1,20})?\b")),
    ("gdr-disabled", re.compile(r"(?i)\bgpu ?direct\b|\bgdr\b|\bnv_?peer_?mem\b|\bnvidia[-_]peermem\b")),
    ("nccl-version-mismatch", re.compile(r"(?i)\b(?:lib)?nccl\b(?!_)")),
    (
        "gpu-thermal-or-power",
        re.compile(r"(?i)\b(?:throttl\w*|power[._ ](?:cap|limit|brake)|hw[_ ]slowdown|clocks?[._ ]sm)\b"),
    ),
    ("pcie-degraded", re.compile(r"(?i)\bpcie\b|\blink width\b")),
    ("stale-lock-or-store", re.compile(r"(?i)(?<![\w.-])(?:[\w/.-]{1,80}[./_-])?lock(?:file)?(?![\w.-])")),
    ("slow-network", re.compile(r"\b\d+ ?[GM]b(?:/s(?:ec)?|ps|it/s)\b|\b[GM]b/s(?:ec)?\b")),
)
"""Of several, the one nearest to what differs counts."""
_FEW = 3
"""Words between the topic and what differs."""
STOPS_TOO = "clock-skew"
"""What slows a job down and may end it: tickets and certificates are not valid yet."""
CAUSES = frozenset({"wrong-environment", "wrong-interface", "cache-not-shared", *(cause for cause, _ in _TOPICS)})


def cause_of(own: str, usual: str, line: str) -> str | None:
    """The cause behind words that one host alone has instead of those that all others have, in its line."""
    if _INTERFACE.search(own) or _INTERFACE.search(usual):
        return "wrong-interface"
    if _VARIABLE.search(own) or _VARIABLE.search(usual):
        return "wrong-environment"
    if _SHARED.search(usual) and (_LOCAL.search(own) or not own):
        return "cache-not-shared"
    near = [(away, cause) for cause, topic in _TOPICS if (away := _away(topic, own, line)) is not None]
    return min(near, key=lambda each: each[0])[1] if near else None


def _away(topic: re.Pattern[str], own: str, line: str) -> int | None:
    """How many words lie between the topic and what differs: a line may tell several things of a host."""
    if topic.search(own):
        return 0
    words = set(own.split())
    found = [
        away
        for match in topic.finditer(line)
        for away in (
            0 if words & set(match[0].split()) else None,
            _first(line[match.end() :].split()[:_FEW], words),
            _first(line[: match.start()].split()[: -_FEW - 2 : -1], words),
        )
        if away is not None
    ]
    return min(found, default=None) if own else 0 if topic.search(line) else None


def _first(near: list[str], words: set[str]) -> int | None:
    return next((away for away, word in enumerate(near) if word in words), None)
