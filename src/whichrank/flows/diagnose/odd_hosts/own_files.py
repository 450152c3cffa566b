"""What stands in the file of one host, of several that are otherwise written alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from whichrank.facts.host_topics import CAUSES
from whichrank.facts.messages import recognise
from whichrank.flows.diagnose.odd_hosts.named_lines import odd_of
from whichrank.flows.diagnose.odd_hosts.texts import COUNTED, HOSTS, MOST_HOSTS, STAMP, Said, Text, host_of_file
from whichrank.model.evidence import Ref
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import People

_SETTING = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=\S{1,200}")
_SHAPE = 120
"""Characters of a line, without its numbers, by which lines of two files are the same."""
_COMMAND = re.compile(r"(?:\++|\$|[\w.@:~/-]{1,80}[$#]) (?P<command>[a-z/][^=]{1,60})")
_ANSWER = 8
"""Lines that belong to a command at most."""


def in_own_files(texts: Sequence[Text], people: People) -> Iterator[OddHost]:
    """A hint that stands in the file of one host, of several that are otherwise written alike."""
    names = {text.label: name for text in texts if (name := host_of_file(text.label, texts, people))}
    shapes: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for _, line in text.lines if text.label in names else ():
            shapes[COUNTED.sub("#", line)[:_SHAPE]].add(text.label)
    alike = {label for labels in shapes.values() if len(labels) >= HOSTS for label in labels}
    if not HOSTS <= len(alike) <= MOST_HOSTS:
        return
    own = [text for text in texts if text.label in alike]
    yield from odd_of([*_settings(own, names), *_answers(own, names)], set(names.values()))
    for text in (text for text in texts if text.label in alike):
        for number, line in text.lines:
            if shapes[COUNTED.sub("#", line)[:_SHAPE]] != {text.label}:
                continue
            hints = [s for s, _ in recognise(line) if s.role == "hint" and s.cause in CAUSES]
            if hints:
                ref = Ref(text.label, f"line {number}", line.strip()[:300], None, names[text.label])
                yield OddHost(names[text.label], hints[0].cause, ref, None, len(alike))
                break


def _settings(texts: Sequence[Text], names: Mapping[str, str]) -> list[Said]:
    """The variables that files of hosts list, a line each."""
    lines = ((text.label, number, line.strip()) for text in texts for number, line in text.lines)
    found = [(label, number, line, _SETTING.fullmatch(line)) for label, number, line in lines]
    return [
        Said(label, number, names[label], (setting[1], line), line) for label, number, line, setting in found if setting
    ]


def _answers(texts: Sequence[Text], names: Mapping[str, str]) -> Iterator[Said]:
    """What short commands printed that a shell wrote down before it ran them: `+ cat /sys/fs/cgroup/cpu.max`."""
    for text in texts:
        command, since = "", 0
        for number, line in text.lines:
            said = line.strip()
            if asked := _COMMAND.fullmatch(said):
                command, since = asked["command"], number
            elif command and said and number - since <= _ANSWER and not STAMP.match(said):
                yield Said(text.label, number, names[text.label], (command, *said.split()), f"{command}: {said}")
