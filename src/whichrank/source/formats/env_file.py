"""Files of NAME=VALUE lines that somebody loads: .env, --env-file of docker, .deepspeed_env."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import counts
from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Assignment, Lost, SettingsFile
from whichrank.source.places import left_as_text

KIND = "env-file"
QUOTE_LIMIT = 300
_LINE = re.compile(r"\s*(export\s+)?([A-Za-z_][\w.]*)(\s*)=(\s*)((?:.*\S)?)\s*")


# How a file of variables tells that a shell reads it.
_OF_A_SHELL = re.compile(
    r"^[ \t]{0,40}(?:export|set|unset|source|\.|if|case|\[)\s"
    r"|^#[^\n]{0,200}?(?:\b(?:sourced?|bash|shell)\b|set -a|\s\. /)"
    r"|\$\(\(|^[ \t]{0,40}:[ \t]",
    re.MULTILINE | re.IGNORECASE,
)
_UNLESS = r"(?!#[^\n]{0,200}\b(?:not|never|don't|no longer)\b)"
"""A comment that says who does not read the file."""
# Who reads the file, as its comments say. Compose, dotenv and Apptainer have options of the same name and expand ${X}.
_BY_DOCKER = re.compile(
    rf"^{_UNLESS}(?![^\n]{{0,200}}\b(?:compose|apptainer|singularity|dotenv|uv run)\b)"
    r"[^\n]{0,200}--(?:from-)?env-file",
    re.MULTILINE | re.IGNORECASE,
)
_BY_SYSTEMD = re.compile(
    rf"^{_UNLESS}#[^\n]{{0,200}}\b(?:EnvironmentFile\b|systemd\b|\w{{1,40}}\.service\b)", re.MULTILINE | re.IGNORECASE
)
_REFERENCE = re.compile(r"\$(?:\{\w{1,80}[^}\n]{0,80}\}|[A-Za-z_]\w{0,80})")
_READERS = "what loads such a file (docker, compose, systemd, dotenv)"
_DOCUMENT = re.compile(r"(?:^|[^<])<<-?\s{0,4}[\"']?(\w{1,40})[\"']?\s{0,40}$")


def _outside_documents(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without the here-documents of a shell, which are text."""
    end = ""
    for number, line in enumerate(text.split("\n"), 1):
        if end:
            end = "" if line.strip() == end else end
            continue
        if not line.lstrip().startswith("#") and (match := _DOCUMENT.search(line[-200:])):
            end = match[1]
        yield number, line


def is_deepspeed(label: str) -> bool:
    return label.endswith("deepspeed_env")


def read(text: str, label: str) -> SettingsFile:
    """The variables of the file. Quotes are taken off as dotenv readers do; DeepSpeed and docker keep them."""
    out = SettingsFile.empty(label, KIND)
    docker = bool(_BY_DOCKER.search(text)) or "docker" in label.rsplit("/", 1)[-1]
    reader = "docker run --env-file" if docker else "EnvironmentFile= of systemd" if _BY_SYSTEMD.search(text) else ""
    raw = is_deepspeed(label) or docker
    sourced = not raw and bool(_OF_A_SHELL.search(text))
    for number, line in _outside_documents(text):
        match = _LINE.fullmatch(line.rstrip("\r"))
        if not match or line.lstrip().startswith("#"):
            continue
        exported, name, before, after, value = match.groups()
        ref = Ref(label, f"line {number}", line.strip()[:QUOTE_LIMIT])
        text_value = _value(value, raw=raw)
        if raw and exported:
            who = "docker" if docker else "DeepSpeed"
            why = f"{who} takes the whole text before '=' for the name: '{line.partition('=')[0]}'"
            out.lost.append(Lost(name, ref, why, f"Write: {name}={value}"))
            continue
        if (before or after) and (docker or not raw):
            why = "blanks around '=' are not allowed: shells and docker refuse the line or take them into the name"
            out.lost.append(Lost(name, ref, why, f"Write: {name}={value}"))
        if docker and text_value != _value(value, raw=False) and counts(name):
            why = f"docker run --env-file takes quotes and comments for parts of the value: {value}"
            out.lost.append(Lost(name, ref, why, f"Write: {name}={_value(value, raw=False)}"))
            text_value = _value(value, raw=False)
        if not raw and not reader:  # a shell that sources the file expands it
            text_value = re.sub(r"^~(?=/)", UNKNOWN, text_value) if value.startswith("~/") else text_value
        unknown = "$" in text_value or UNKNOWN in text_value
        if reader and not sourced and counts(name) and (match := _REFERENCE.search(value)):
            why = f"{reader} expands nothing: {match.group()} stays text"
            out.lost.append(Lost(name, ref, why, "Write the value itself."))
        if not sourced and not value.startswith("'") and (lost := left_as_text.lost(name, value, ref, _READERS)):
            out.lost.append(lost)
        out.assignments.append(
            Assignment(
                name, None if unknown else text_value, ref, label, "export", partial=text_value if unknown else ""
            )
        )
    return out


def _value(value: str, *, raw: bool) -> str:
    if raw:
        return value
    if match := re.match(r"([\"'])(.*?)\1\s*(?:#.*)?$", value):
        return match[2]
    return re.split(r"\s+#", value, maxsplit=1)[0]
