"""Transcripts of shells: exit codes that somebody asked for (`echo $?`), and what probes print beside the job."""

from __future__ import annotations

import re

ASKED = b"echo $"
"""Stands, in lower case, in every transcript with such a question."""
_LONGEST = 512
_TYPED = re.compile(r"\s{0,4}(?:\([\w.-]{1,40}\) )?(?:\$|[\w.@:~/-]{1,80}[$#]|\[[^\]]{1,80}\][$#]) (?=\S)")
"""A shell's prompt: `$ `, `node1$ `, `user@node1:~/job# `, `[user@node1 job]$ `."""
_ASKS = re.compile(r"(?:^|[;&|] ?)echo [\"']?(?P<words>[^\"'$;|]{0,40})\$(?:\?|\{\?\})[\"']?\s{0,8}$")
"""`echo $?`, `torchrun …; echo "exit code: $?"`."""
_NUMBER = re.compile(r"\d{1,3}")
_LAUNCHES = re.compile(
    r"\b(?:torchrun|python\d?|mpirun|mpiexec|srun|deepspeed|accelerate|horovodrun|bash|sh|make|docker|apptainer)\b"
    r"|\.(?:sh|py)\b|_perf\b"
)
_TOOLS = (
    r"(?:nc|ncat|netcat|ping6?|telnet|curl|wget|ssh|scp|rsync|nslookup|dig|getent|systemctl|iperf3?|ib_\w{2,20}|ibstat"
    r"|ibping|rping|nvidia-smi|dcgmi|mount|umount|ntpdate|chronyc|timedatectl)\b"
)
PROBES = re.compile(rb"[$#] (?:sudo )?" + _TOOLS.encode())
"""Stands in every transcript with such a command."""
_PROBE = re.compile(rf"(?:sudo )?{_TOOLS}")
_BY_HAND = 130
"""What a shell says of a program that somebody ended with ^C."""


class Shell:
    """Fed with the lines of a transcript, in order; tells the codes with which a job ended, and what is not its."""

    def __init__(self) -> None:
        self.asked = ""
        """The command that was asked about, or the question where the output does not show it."""
        self.probes = False
        """Whether the line fed last is a probe, or what it printed: hosts and services were looked at, not the job."""
        self._command = ""
        self._words: str | None = None
        """What the answer begins with, while it is waited for."""
        self._next = False

    def feed(self, line: bytes) -> int | None:
        """The code, where this line is the answer to `echo $?`."""
        text = line[:_LONGEST].decode("utf-8", "replace").rstrip("\r\n")
        prompt = _TYPED.match(text)
        if prompt is not None:
            self._typed(text[prompt.end() :])
            return None
        if self._words is None or not text.strip():
            return None
        begins = text.startswith(self._words)
        answer = _NUMBER.fullmatch(text[len(self._words) :].strip()) if begins else None
        if answer or self._next:  # behind `torchrun …; echo $?` comes first what the command prints
            self._words = None
        of_job = not self._command or _LAUNCHES.search(self._command)
        return int(answer[0]) if answer and of_job and int(answer[0]) != _BY_HAND else None

    def _typed(self, command: str) -> None:
        self.probes = _PROBE.match(command) is not None
        question = _ASKS.search(command)
        self._words = question["words"] if question else None
        self._next = question is not None and question.start() == 0
        if not self._next:
            self._command = command
        if question is not None:
            self.asked = self._command or command
