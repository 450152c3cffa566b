"""Texts that a script writes or feeds to a program: what kind of file they become, if any that counts."""

from __future__ import annotations

import re
from importlib import import_module

from whichrank.records.settings import UNKNOWN, SettingsFile
from whichrank.source.shell.syntax import Loop, Simple
from whichrank.source.shell.tokens import Redirect
from whichrank.source.shell.words import Lookup, pieces

_LOADS = r"(?:grep|cat|sed|xargs|egrep|envsubst)\b.*?([\w./~${}-]*\.?env[\w.-]*)"


def written_to(redirects: list[Redirect]) -> str:
    """The file that output goes to."""
    for redirect in redirects:
        if redirect.operator in {">", ">>", ">|", "&>"}:
            return "".join(
                piece.text if piece.kind == "text" else piece.source for piece in pieces(redirect.target.raw)
            )
    return ""


def tee_target(node: Simple) -> str:
    """The file of `| sudo tee -a FILE`."""
    words = [word.raw.strip("\"'") for word in node.words]
    if "tee" not in words[:3]:
        return ""
    names = [w for w in words[words.index("tee") + 1 :] if not w.startswith("-")]
    return names[0] if names else ""


def kind_of_target(path: str, text: str = "", program: str = "") -> str:
    """What a file that is written is for: conf, env, profile, shell, python, manifest, dockerfile, or nothing."""
    name = path.rsplit("/", 1)[-1]
    if name in {"nccl.conf", ".nccl.conf"}:
        return "conf"
    if path.endswith((".env", "deepspeed_env", "/etc/environment")) or "GITHUB_ENV" in path:
        return "env"
    if name in {".bashrc", ".profile", ".bash_profile", ".zshrc"} or "/profile.d/" in path or path == "/etc/profile":
        return "profile"
    return _kind_of_document(name, text, program) if text else ""


def _kind_of_document(name: str, text: str, program: str) -> str:
    if name.endswith((".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".lsf", ".job")) or text.startswith("#!/bin/"):
        return "shell"
    if name.endswith(".py"):
        return "python"
    if name.endswith((".yaml", ".yml")) or program.startswith(("kubectl apply", "kubectl create", "oc apply")):
        return "manifest"
    return "dockerfile" if name.startswith("Dockerfile") or program.startswith("docker build") else ""


def other(kind: str, body: Redirect, out: SettingsFile) -> None:
    """A file of another format inside the script."""
    reader = import_module(f"whichrank.source.formats.{kind}")
    out.add(reader.read("\n" * (body.body_line - 1) + body.body, out.label))


def unescaped(body: Redirect) -> str:
    """The text of a here-document as its reader gets it."""
    if body.literal:
        return body.body
    filled = re.sub(r"(?<!\\)(?:\$\((?!\()[^()\n]*\)|`[^`\n]*`)", "${UNKNOWN}", body.body)  # run by the writer, once
    return re.sub(r"\\([$`\\])", r"\1", filled)


def filled(body: Redirect, lookup: Lookup) -> str:
    """The text of a here-document with the variables put in that the script itself sets for sure."""

    def put_in(match: re.Match[str]) -> str:
        value = lookup(match[1] or match[2])
        sure = value is not None and value.fixed and value.items is None and UNKNOWN not in value.text
        return value.text if value is not None and sure else match.group()

    return body.body if body.literal else re.sub(r"(?<!\\)\$(?:\{(\w+)\}|([A-Za-z_]\w*))", put_in, body.body)


def read_names(node: Loop) -> list[str]:
    """The variables of `while read -r k v`."""
    test = node.condition[-1].node if node.condition else None
    words = [word.raw for word in test.words] if isinstance(test, Simple) else []
    behind = words[words.index("read") + 1 :] if "read" in words else []
    return [word for word in behind if re.fullmatch(r"[A-Za-z_]\w*", word)]


def read_rows(node: Loop, piped: str = "") -> list[list[tuple[str, str, int]]]:
    """`while read -r k v; do …; done <<EOF`: for each line of the text what each variable gets.

    Piped: what a command in front of the loop prints."""
    body = next((r for r in node.redirects if r.body and r.operator != "<<<"), None)
    test = node.condition[-1].node if node.condition else None
    names = read_names(node)
    if (body is None and not piped) or not isinstance(test, Simple) or not names:
        return []
    words = [word.raw for word in test.words]
    separator = next((w.partition("=")[2].strip("\"'$") for w in words if w.startswith("IFS=")), "") or None
    text, first = (body.body, body.body_line) if body is not None else (piped, 0)
    rows = []
    for offset, line in enumerate(text.split("\n")):
        if not line.strip():
            continue
        parts = line.strip().split(separator, len(names) - 1)
        parts += [""] * (len(names) - len(parts))
        at = first + offset if first else test.words[0].line
        rows.append([(n, p, at) for n, p in zip(names, parts, strict=False)])
    return rows


def loads_file(raw: str) -> str:
    """The file in `export $(grep -v '^#' .env | xargs)`."""
    for piece in pieces(raw):
        if piece.kind == "command" and (match := re.search(_LOADS, piece.text)):
            return match[1]
    return ""
