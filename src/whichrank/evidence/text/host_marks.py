"""Whose answer follows, where people ask several hosts, or put the output of several ranks, and keep it in one file:
headings, prompts, typed commands."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from whichrank.evidence.text.own_prefix import NO_HOST
from whichrank.evidence.text.path_hint import PathHint, hint_of_path

PROMPT = (
    r"(?:\[(?:[\w.-]{1,32}@)?([\w.-]{1,64})(?: [^\]\n]{0,60})?\]|[\w.-]{1,32}@([\w.-]{1,64})(?::[^$#\n]{0,60})?)[$#] "
    r"|([A-Za-z][\w.-]{1,63}) ?[$#>] (?=ibv_devinfo|ibstat|perfquery|ethtool|rdma |cat /sys|nvidia-smi)"
)
"""`[node1]$ `, `[root@node1 ~]# `, `user@node1:~$ `, `node1 # ibstat`."""
_PROMPT = re.compile(PROMPT)
_HOST = r"[A-Za-z][\w.-]{1,62}"
_LIKE_A_HOST = rf"(?=\S{{0,40}}[\d-])({_HOST})"
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}"
_TYPED = re.compile(
    r"[^$#>+\n]{0,80}[$#>+]{1,2} (?:sudo |timeout \d{1,5} )?"
    rf"(?:ssh (?:-[A-Za-z] ?[\w=./]{{0,60}} ){{0,6}}(?:[\w.-]{{1,32}}@)?({_HOST}|{_ADDRESS})(?=\s|$)"
    r"|kubectl (?:-[\w=-]{1,40} (?:[\w.-]{1,60} )?)?(?:logs|exec|describe pod) (?:-[\w=-]{1,30} ){0,4}"
    rf"(?:pod/)?({_HOST})(?=\s|$)"
    rf"|srun [^\n]{{0,80}}?(?:-w|--nodelist)[ =]({_HOST})(?=\s|$))"
)
"""`$ ssh node7 dmesg`, `user@login:~$ kubectl logs trainer-2`, `+ srun --overlap -w node7 nvidia-smi`."""
_ANSWERED = re.compile(
    rf"({_HOST}|{_ADDRESS}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE)\b"
    rf"|\[\d{{1,5}}\] [\d:]{{8}} \[(?:SUCCESS|FAILURE)\] ({_HOST})"
)
"""How Ansible and parallel-ssh begin the answer of a host."""
_ABOUT = r"(?:[\w -]{1,60} (?:on|of|from|for) |(?:on|from|host|node|hostname|machine|server|pod)[:=]? {1,4})?"
_TITLE = re.compile(
    rf"\s{{0,4}}([=#*>~-]{{2,60}}|#) {{0,4}}{_ABOUT}{_LIKE_A_HOST}(?: {{1,4}}\(?({_ADDRESS})\)?)?"
    r"(?::?\s{0,4}[=#*<>~-]{0,60}\s{0,4}$"
    r"|(?:[:,]| \(| [|/-]| (?=(?i:rank)[ _#]?\d)| {1,4}(?=nvidia-smi\b)| {1,4}[=#*~-]{2,60} ) ?\S"
    r"| {1,4}(?!ping statistics)[A-Za-z][^\n]{1,60} [=#*~-]{2,60}\s{0,4}$)",
    re.IGNORECASE,
)
"""`== dmesg on node7 ==`, `--- node7`, `# node7 10.0.0.7, taken at 11:48`, `## host node7 (ranks 0-7)`, `== node7 ==
nvidia-smi -L`, `--- node7 show_gids (index 3) ---`."""
_ANNOUNCED = re.compile(
    rf"\s{{0,4}}(?:\[{_LIKE_A_HOST}\]|\*\*{_LIKE_A_HOST}:?\*\*:?|(?:.{{1,80}} on |{_ABOUT}){_LIKE_A_HOST} ?:"
    rf"|(?:host|hostname|node|machine|server|pod)[:=] {{0,4}}{_LIKE_A_HOST})$",
    re.IGNORECASE,
)
"""`[node7]`, `**node7**`, `node7:`, `Host: node7`, `dmesg of node7:`, `After the crash, on node7:`."""
_SCHEDULED = re.compile(rf"Node: {{2,40}}({_HOST})/({_ADDRESS})$")
"""Where `kubectl describe` says that a pod runs."""
_FILE = re.compile(r"==> (?:\S{0,200}/)?([A-Za-z][^\s/.]{1,62})[^\s/]{0,40} <==$")
"""How `tail` and `head` begin each of several files."""
_SHOWN = re.compile(r"[^$#\n]{0,60}[$#] (?:tail|head|cat|less)\b[^\n|]{0,80}? (\S{1,200})(?= ?\||$)")
"""`$ tail logs/rank_3.log`."""
_RANK = re.compile(r"(?:(?<![A-Za-z_-])|(?<=global[ _]))rank[ _#:=]{0,2}(\d{1,6})(?![\d-])", re.IGNORECASE)
_RANK_ALONE = re.compile(
    r"\s{0,4}(?:\[rank[ _]?\d{1,6}\]|\*\*rank[ _]?\d{1,6}:?\*\*:?|rank[ _]?\d{1,6}:)$", re.IGNORECASE
)
_A_TITLE = 80
"""A heading is not longer."""
_OTHER_TITLE = re.compile(r"\s{0,4}([=#*~-]{2,60}|#) {0,4}(?!Rank {1,6}\d{1,6} (?:Group|Pid) )[^\s=#*~-]")
"""The rows in which NCCL's tests list their ranks head nothing."""
_AT = re.compile(rf"[\w.-]{{1,32}}@({_HOST})\(({_ADDRESS})\)(?::[^$#\n]{{0,60}})?[$#] ")
"""A prompt with the address: `root@node7(10.0.0.7):/# `."""
_AT_PATH = re.compile(rf"({_HOST}):[~/][^$#\s]{{0,60}}[$#] ")
"""`node7:~$ cat /etc/hosts`."""
_IN_CODE = re.compile(r" {4,8}(?=[\w.@~:/\[\]-]{2,120}\$ )")
"""What Markdown puts before the lines of a shell."""
_COMMENT = re.compile(r" # {0,3}(\S.{0,120})$")
_BARE_PROMPT = re.compile(rf"{_LIKE_A_HOST}(?: \([^()\n]{{1,40}}\))? ?[$#>] (?=[a-z./])")
"""`node7 # lsmod`, `node7 (node rank 1) # lsmod`."""
_ASKED = re.compile(
    rf"\[({_HOST})\] (?:sudo )?(?:(?:ip|ss|ping|ethtool|nvidia-smi|df|free|top|ps|dmesg|env|ulimit|ibstat|ibv_devinfo"
    r"|ifconfig|netstat|getent|lscpu|lspci|lsmod|uname|nstat|numactl) (?:-|\w)|(?:cat|ls) [/~])"
)
"""`[node7] ip -br addr`: a command, with the host where it ran."""
_ENDS, _DECORATES = (":", "]", "**"), tuple("=#*>~-")
_SIGNS, _SOON = ("$ ", "] ", "# ", "> ", "+ ", " | ", "[SUCCESS]", "[FAILURE]"), 120
NODE = "Node:"
_SAYS = tuple(f"{word}{sign}" for word in ("host", "hostname", "node", "machine", "server", "pod") for sign in ":=")
_NO_TITLE = re.compile(
    r"(?:[\w.-]{0,40}[_.-])?(?:exp\w{0,9}|runs?|trial|attempt|tests?|case|phase|stage|config\w{0,7}|part|section|v|version"
    r"|option|setup|variant|seed|model|dataset|day|week|month|issue|ticket|note|round|layer|group|team|batch|block|thread"
    r"|process|pid|dump|sample|try|shard|item|job|slurm|logs?|out\w{0,4}|err\w{0,4}|device|port|link|core|cpu|nic|q|fig\w{0,4}"
    r"|nvidia-smi|rocm-smi|amd-smi|py-spy|table|chapter|scenario|build|checkpoint|ckpt|snapshot|torch|nccl|cuda|python|train\w{0,4}(?=[._-]\d{6}))"
    r"(?:[_.-]?(?:\d[\w.-]{0,20}|[a-z]))?",
    re.IGNORECASE,
)
"""What else people number and write into headings."""
_HERE = re.compile(r"\s{0,4}\$ \S")
"""A command that was typed where the one before went to another host."""


class Mark(Struct, frozen=True):
    """A line that says of which host the next ones are."""

    host: str | None
    """None: of no host, or of all."""
    sure: bool = True
    """Whether it can only mean a host; else its likes or other evidence must confirm the name."""
    address: str | None = None
    mark: str = ""
    """What decorates it: a title of the same look ends what it heads."""
    rank: int | None = None
    local_rank: int | None = None

    @property
    def names(self) -> bool:
        """Whether it says whose the lines below are."""
        return not (self.host is None and self.rank is None and self.local_rank is None)


def host_above(line: str) -> str | None:
    """The host that a heading or a sure prompt names."""
    mark = mark_of(line)
    return mark.host if mark and (mark.sure or mark.mark != "@") else None


def _may_mark(line: str) -> bool:
    """What all marks have, found sooner: most lines of a log have none of it."""
    if line.endswith(_ENDS) or line.lstrip()[:1] in _DECORATES:
        return True
    return any(map(line[:_SOON].__contains__, _SIGNS)) or line.lower().startswith(_SAYS)


def mark_of(line: str) -> Mark | None:
    """What a line says of the host of those below it."""
    if not _may_mark(line):
        return None
    typed = line[code.end() :] if (code := _IN_CODE.match(line)) else line
    if mark := _of_shell(typed):
        return _commented(mark, typed)
    if mark := _of_title(line):
        return mark
    other = _OTHER_TITLE.match(line)
    if other or _RANK_ALONE.match(line):
        return Mark(None, mark=other[1] if other else ":", rank=_rank_in(line))
    return Mark(None, mark="$") if _HERE.match(line) else None


def _commented(mark: Mark, line: str) -> Mark:
    """With the rank that somebody wrote behind the command."""
    comment = _COMMENT.search(line)
    rank = _rank_in(comment[1]) if comment else None
    return replace(mark, rank=rank) if rank is not None else mark


def _rank_in(line: str) -> int | None:
    """The one rank that a heading names."""
    found = set(_RANK.findall(line)) if len(line) <= _A_TITLE else set()
    return int(found.pop()) if len(found) == 1 else None


def _of_file(path: str, mark: str) -> Mark | None:
    hint = hint_of_path(path)
    return Mark(None, mark=mark, rank=hint.rank, local_rank=hint.local_rank) if hint != PathHint() else None


def _of_shell(line: str) -> Mark | None:
    """Prompts, commands that go to a host, and how tools begin the answers of each."""
    typed = _TYPED.match(line)
    if asked := typed or _ANSWERED.match(line):
        return Mark(next(name for name in asked.groups() if name), mark="$" if typed else "|")
    if prompt := _AT.match(line):
        return Mark(prompt[1], address=prompt[2], mark="@")
    if prompt := _PROMPT.match(line):
        return Mark(prompt[1] or prompt[2] or prompt[3], mark="@")
    if prompt := _AT_PATH.match(line):
        return Mark(prompt[1], mark="@")
    if asked := _ASKED.match(line):
        return Mark(_unless_rank(asked[1]), mark="@")
    prompt = _BARE_PROMPT.match(line)
    return Mark(host, sure=False, mark="@") if prompt and (host := _unless_rank(prompt[1])) else None


def _of_title(line: str) -> Mark | None:
    """What people, `tail` and `head` write above the lines of each host or rank."""
    if line.startswith("==> ") and (mark := _of_file(line[4:].removesuffix(" <=="), "==>")):
        return mark
    if line.startswith(NODE) and (node := _SCHEDULED.match(line)):
        return Mark(node[1], address=node[2], mark=NODE)
    if file := _FILE.match(line):
        return Mark(_unless_rank(file[1]), sure=False, mark="==>")
    if (shown := _SHOWN.match(line)) and (mark := _of_file(shown[1], "$")):
        return mark
    if (title := _TITLE.match(line)) and (host := _unless_rank(title[2])):
        return Mark(host, sure=False, address=title[3], mark=title[1], rank=_rank_in(line))
    said = _ANNOUNCED.match(line)
    host = _unless_rank(next(name for name in said.groups() if name)) if said else None
    return Mark(host, sure=False, mark=":") if host else None


def _unless_rank(name: str) -> str | None:
    return None if NO_HOST.match(name) or _NO_TITLE.fullmatch(name) else name.rstrip("-.")


def ends(other: Mark, above: Mark) -> bool:
    """Whether a title of no host ends what another heads: one of the same look does, and of Markdown a higher one."""
    if not above.mark:
        return False
    if other.mark[0] == "#" == above.mark[0]:
        return len(other.mark) <= len(above.mark)
    return other.mark == above.mark
