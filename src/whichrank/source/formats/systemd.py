"""systemd units: Environment=, files of variables, and the commands that run with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from whichrank.facts.variables.environment import is_read
from whichrank.model.evidence import Ref
from whichrank.records.launches import Launch
from whichrank.records.settings import UNKNOWN, Assignment, Clash, Lost, SettingsFile
from whichrank.source import memory
from whichrank.source.places import each_host
from whichrank.source.shell.allocation import Allocation, Count
from whichrank.source.shell.embedded import Given, run_command

KIND = "systemd"
QUOTE_LIMIT = 300
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|((?:[^\s"\']|"[^"]*"|\'[^\']*\')+)')
_SPECIFIER = re.compile(r"%([A-Za-z%])")
# systemd.unit(5): %H is the host's name, %l its first part; %m identifies the machine, %b the boot.
_OWN_NAME, _OWN_ID = re.compile(r"(?<!%)%[Hl]"), re.compile(r"(?<!%)%[mb]")


def looks_like(text: str) -> bool:
    return bool(re.search(r"^\[(?:Service|Unit|Install|Timer|Socket)\]\s*$", text, re.MULTILINE))


def read(text: str, label: str) -> SettingsFile:
    """What the unit sets, and whether it reaches the command."""
    out = SettingsFile.empty(label, KIND)
    lines = text.split("\n")
    given: dict[str, Given] = {}
    commands: list[tuple[str, str, int]] = []
    service: dict[str, tuple[str, int]] = {}

    def ref(line: int) -> Ref:
        return Ref(label, f"line {line}", lines[line - 1].strip()[:QUOTE_LIMIT] if line <= len(lines) else "")

    for section, key, value, line in _settings(lines):
        if section not in {"", "Service"}:
            _outside(out, section, key, value, ref(line))
        elif key == "Environment" and not value:
            given.clear()
            out.assignments.clear()
        elif key == "Environment":
            for name, raw, at in _items(value, line):
                _variable(out, name, raw, ref(at), given, at)
        elif key == "UnsetEnvironment":
            for name, _, _ in _items(value, line):
                given.pop(name or "", None)
            dropped = set(value.split())
            out.assignments[:] = [a for a in out.assignments if a.name not in dropped]
        elif key in {"ExecStart", "ExecStartPre"} and value:
            commands.append((key, value, line))
        else:
            service[key] = value, line
    start = next((line for key, _, line in commands if key == "ExecStart"), 1)
    _run(
        out,
        commands,
        lines,
        list(given.values()),
        Allocation(locked=_locked(service, start), grace=_grace(service, start)),
    )
    _shut_in(out, service, ref)
    return out


# systemd-system.conf(5): DefaultLimitMEMLOCK=8M (64K before 2019), DefaultTimeoutStopSec=90s.
_LOCKED, _STOPPING = 8 << 20, 90


def _locked(service: dict[str, tuple[str, int]], start: int) -> Count | None:
    """Memory that the service may lock; root may lock all."""
    if "LimitMEMLOCK" in service:
        value, line = service["LimitMEMLOCK"]
        soft = memory.size(value.partition(":")[0])
        return Count(soft, line, "LimitMEMLOCK") if soft is not None else None
    user = service.get("User", ("root", 0))[0]
    return Count(_LOCKED, start, "LimitMEMLOCK (by default)", exact=False) if user not in {"root", "0", ""} else None


def _grace(service: dict[str, tuple[str, int]], start: int) -> Count | None:
    stated = service.get("TimeoutStopSec") or service.get("TimeoutSec")
    if stated is None:
        return Count(_STOPPING, start, "TimeoutStopSec (by default)", exact=False)
    found = memory.seconds(stated[0])
    return Count(found, stated[1], "TimeoutStopSec") if found else None


def _shut_in(out: SettingsFile, service: dict[str, tuple[str, int]], ref: Callable[[int], Ref]) -> None:
    """Protection of a unit that keeps its ranks from the GPUs or from other hosts."""
    several = any(launch.several for launch in out.launches)
    for key, hides, wanted in (
        ("PrivateDevices", "/dev/nvidia* does not exist for the service, and no rank finds a GPU", bool(out.launches)),
        ("PrivateNetwork", "the service has the loopback interface only, and does not reach the other hosts", several),
    ):
        value, line = service.get(key, ("", 0))
        if wanted and value.lower() in {"yes", "true", "on", "1"}:
            out.clashes.append(Clash(key, ref(line), hides, f"Remove {key}=."))


def _variable(out: SettingsFile, name: str | None, raw: str, ref: Ref, given: dict[str, Given], line: int) -> None:
    """One item of Environment=."""
    if name is None:
        _stray(out, raw, ref, given)
        return
    shown = _specifiers(out, name, raw, ref)
    if dollar := re.search(r"\$(?:\{\w+\}|\([^)]*\)?|[A-Za-z_]\w*)|`[^`]+`?", shown):
        why = f"systemd expands nothing in Environment=: the value holds the text {dollar.group()} itself"
        fix = "Write the value, take it from an EnvironmentFile=, or set it in ExecStart=/bin/sh -c '…'."
        out.lost.append(Lost(name, ref, why, fix))
        shown = UNKNOWN
    own = bool(_OWN_NAME.match(raw))
    given[name] = Given(
        name, shown, line, own=own, drawn=not own and bool(_OWN_NAME.search(raw) or _OWN_ID.search(raw))
    )
    known = None if UNKNOWN in shown else shown
    out.assignments[:] = [a for a in out.assignments if a.name != name]
    out.assignments.append(Assignment(name, known, ref, out.label, "export", partial="" if known else shown))


def _run(
    out: SettingsFile, commands: list[tuple[str, str, int]], lines: list[str], given: list[Given], size: Allocation
) -> None:
    """The commands of the unit, each in a process of its own."""

    def ref(line: int) -> Ref:
        return Ref(out.label, f"line {line}", lines[line - 1].strip()[:QUOTE_LIMIT] if line <= len(lines) else "")

    for key, command, line in commands:
        known = {item.name: item.text for item in given if key == "ExecStart" and UNKNOWN not in item.text}
        words = [(_put_in(w, known), _put_in(w, known), at) for w, at in _words(command, line)]
        _shell_signs(out, words, lines)
        words[:1] = [(words[0][0].lstrip("@-:+!"), words[0][1].lstrip("@-:+!"), words[0][2])] if words else []
        found = run_command(words, out.label, lines, given if key == "ExecStart" else [], size)
        for launch in found.launches:
            _of_each_host(launch)
            each_host.tell(launch, [(word, at) for word, _, at in words], _OWN_NAME, _OWN_ID, ref)
        if key == "ExecStartPre":
            _before(out, found)
            continue
        out.assignments += found.assignments
        out.lost += [lost for lost in found.lost if lost not in out.lost]
        out.clashes += [clash for clash in found.clashes if clash not in out.clashes]
        out.launches += found.launches
        out.production |= {out.label} if found.production else set()
        out.torch, out.nccl = found.torch, found.nccl


def _of_each_host(launch: Launch) -> None:
    """%i is what the unit is started for."""
    if launch.rank is not None and _SPECIFIER.search(launch.rank.text):
        launch.rank = launch.rank._replace(text=UNKNOWN)


def _put_in(word: str, known: Mapping[str, str]) -> str:
    """`${NAME}` of Environment= in a command, which systemd itself fills in."""
    return re.sub(r"(?<!\$)\$\{(\w+)\}", lambda found: known.get(found[1], found.group()), word)


def _shell_signs(out: SettingsFile, words: list[tuple[str, str, int]], lines: list[str]) -> None:
    """`a > b`, `a | b`, `a && b` without a shell: the program gets the signs as arguments."""
    if words and re.search(r"(?:^|/)(?:ba|da|z|k)?sh$", words[0][0]):
        return
    for word, _, line in words:
        if re.fullmatch(r"\d?>>?(?:&\d)?|2>&1|&&|\|\|?|&", word) and line <= len(lines):
            ref = Ref(out.label, f"line {line}", lines[line - 1].strip()[:QUOTE_LIMIT])
            why = f"systemd runs no shell: the program gets {word} and what follows as arguments"
            out.lost.append(Lost("ExecStart", ref, why, "Write ExecStart=/bin/sh -c '…', or StandardOutput=append:…."))
            return


def _before(out: SettingsFile, found: SettingsFile) -> None:
    """What a command before the main one exports ends with it."""
    for a in found.assignments:
        if is_read(a.name) and re.search(rf"\bexport\b.*\b{a.name}=", a.ref.quote):
            why = "ExecStartPre= is a process of its own, which ends before ExecStart="
            out.lost.append(Lost(a.name, a.ref, why, f"Write: Environment={a.name}=…"))


def _outside(out: SettingsFile, section: str, key: str, value: str, ref: Ref) -> None:
    """Environment= in a section that has no such setting."""
    if key == "Environment" and section in {"Unit", "Install", "Timer"}:
        for name, _, _ in _items(value, 1):
            if name and is_read(name):
                why = f"[{section}] has no Environment=, and systemd ignores it there"
                out.lost.append(Lost(name, ref, why, "Move the line to [Service]."))


def _settings(lines: list[str]) -> Iterator[tuple[str, str, str, int]]:
    """Section, key, value (continued lines joined by newlines) and line of each setting."""
    index = 0
    section = ""
    while index < len(lines):
        line, start = lines[index], index + 1
        index += 1
        if head := re.match(r"\s*\[(\w+)\]", line):
            section = head[1]
        match = re.match(r"\s*([A-Za-z]+)\s*=\s*(.*)", line)
        if not match or line.lstrip().startswith(("#", ";")):
            continue
        value = match[2]
        while value.rstrip().endswith("\\") and index < len(lines):
            following = lines[index]
            index += 1
            skipped = following.lstrip().startswith(("#", ";"))
            value = value.rstrip()[:-1] + "\n" + (" \\" if skipped else following)
        yield section, match[1], value.rstrip(), start


def _words(text: str, line: int) -> Iterator[tuple[str, int]]:
    for match in _ITEM.finditer(text):
        at = line + text.count("\n", 0, match.start())
        double, single, bare = match.groups()
        word = double if double is not None else single if single is not None else re.sub(r"[\"']", "", bare)
        yield re.sub(r"\\([\"'\\])", r"\1", word), at


def _items(text: str, line: int) -> Iterator[tuple[str | None, str, int]]:
    for word, at in _words(text, line):
        name, equals, value = word.partition("=")
        valid = equals and re.fullmatch(r"[A-Za-z_]\w*", name)
        yield (name if valid else None), (value if valid else word), at


def _stray(out: SettingsFile, word: str, ref: Ref, given: dict[str, Given]) -> None:
    """A word that is no assignment: most often the rest of a value with a blank in it, or `export`."""
    last = next(reversed(given), "")
    if is_read(word):
        why = f"systemd takes no blanks around '=' and ignores '{word}'"
        out.lost.append(Lost(word, ref, why, f"Write: Environment={word}=…"))
    elif is_read(last):
        why = f"systemd splits the line at blanks and ignores '{word}'; there are no comments behind values"
        found = Lost(last, ref, why, f'Quote the whole assignment: Environment="{last}=…"')
        if found.ref.locator not in {lost.ref.locator for lost in out.lost}:
            out.lost.append(found)


def _specifiers(out: SettingsFile, name: str, value: str, ref: Ref) -> str:
    """systemd replaces %h, %p and others itself; %% is a percent sign."""
    own = [letter for letter in _SPECIFIER.findall(value) if letter in {"h", "p"}]
    if own and name == "NCCL_DEBUG_FILE":
        why = f"systemd expands %{own[0]} itself, before NCCL sees it (%h is the home folder, %p the unit's name)"
        out.lost.append(Lost(name, ref, why, f"Double the signs: {value.replace('%', '%%')}"))
        return _SPECIFIER.sub(lambda m: "%" if m[1] == "%" else UNKNOWN, value)
    return _SPECIFIER.sub(lambda m: "%" if m[1] == "%" else UNKNOWN, value)
