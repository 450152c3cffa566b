"""What agents may do with whichrank: a table of tools, each with its schema, a function and what it does to a system.

Tools that only read do so at once. What changes anything (collect: it writes a folder, and asks live processes) is
done only when it is asked for twice: the first call says what would happen and gives a code, the second one brings the
code back.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank import report
from whichrank.model.errors import UsageError

Arguments = Mapping[str, Any]
Document = dict[str, Any]
MOST = 200
"""Entries of a list that an agent gets; the rest is in the files."""
VALID_S = 600.0
"""For how long a code for the second call holds."""


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool."""

    name: str
    title: str
    description: str
    inputs: Document
    run: Callable[[Arguments], tuple[str, Document]]
    """The answer for reading, and the same as a document."""
    schema: str = ""
    """The name of the JSON Schema of the document (`whichrank schema NAME`)."""
    reads_only: bool = True

    def input_schema(self) -> Document:
        required = [name for name, about in self.inputs.items() if about.get("required")]
        known = {name: {k: v for k, v in about.items() if k != "required"} for name, about in self.inputs.items()}
        return {"type": "object", "properties": known, "required": required, "additionalProperties": False}

    def output_schema(self) -> Document | None:
        if not self.schema:
            return None
        file = Path(report.__file__).parent / "schemas" / f"{self.schema}.schema.json"
        found: Document = json.loads(file.read_text(encoding="utf-8"))
        return found


@dataclass(slots=True)
class Confirmations:
    """Codes that were given out for a second call: each for exactly these arguments, once, and not for long."""

    _given: dict[str, tuple[str, float]] = field(default_factory=dict)

    def ask(self, name: str, arguments: Arguments) -> str:
        code = secrets.token_hex(4)
        self._given[code] = (_key(name, arguments), time.monotonic() + VALID_S)
        return code

    def accept(self, name: str, arguments: Arguments, code: str) -> bool:
        meant, until = self._given.pop(code, ("", 0.0))
        return meant == _key(name, arguments) and time.monotonic() < until


def _key(name: str, arguments: Arguments) -> str:
    return json.dumps([name, {k: v for k, v in arguments.items() if k != "confirm"}], sort_keys=True)


def tools(confirmations: Confirmations | None = None) -> list[AgentTool]:
    """All of them."""
    asked = confirmations or Confirmations()
    paths = {"type": "array", "items": {"type": "string"}, "minItems": 1, "required": True}
    return [
        AgentTool(
            "diagnose", "Diagnose a distributed job",
            "Which rank broke a distributed training job, why, the proof and what to do: from flight-recorder dumps, "
            "logs, stacks, kernel logs, bundles, folders and archives. Reads only; runs nothing.",
            {
                "paths": {**paths, "description": "Files, folders or archives that the job left."},
                "source": {"type": "string", "description": "The folder of the training code."},
                "why": {"type": "boolean", "description": "Every hypothesis, with what speaks for and against it."},
            },
            _diagnose, "diagnose",
        ),
        AgentTool(
            "explain", "Explain a word or message",
            "What a rule code, a cause, an environment variable, an Xid, an exit code, or a message of NCCL or torch "
            "means.",
            {"words": {"type": "string", "maxLength": 65536, "required": True}}, _explain, "explain",
        ),
        AgentTool(
            "env_lint", "Check settings",
            "Settings of NCCL and torch that are wrong or never reach the ranks: in launch scripts, manifests, env "
            "files. Without paths, those of this process's environment.",
            {
                "paths": {"type": "array", "items": {"type": "string"}},
                "torch": {"type": "string", "description": "The version of torch, such as 2.6."},
                "nccl": {"type": "string", "description": "The version of NCCL, such as 2.21.5."},
            },
            _env_lint, "env-lint",
        ),
        AgentTool(
            "lint", "Read training code",
            "Collectives that not every rank will reach, by reading Python code. Nothing is run or imported.",
            {
                "paths": {**paths, "description": "Python files, or the folder of the training code."},
                "select": {"type": "array", "items": {"type": "string"}, "description": "Codes, or their beginnings."},
                "ignore": {"type": "array", "items": {"type": "string"}},
            },
            _lint, "lint",
        ),
        AgentTool(
            "compare", "Compare two runs",
            "What changed between a run that worked (a) and one that did not (b), most suspicious first: results of "
            "whichrank run, bundles, profiler traces, guard records.",
            {"a": {"type": "string", "required": True}, "b": {"type": "string", "required": True}}, _compare, "compare",
        ),
        AgentTool(
            "collect", "Collect evidence of a running job",
            "Stacks, dumps, state and settings of every rank of a job that runs on this host, into a new folder. It "
            "asks live processes and writes files, so it must be called twice: the first call says what it will do "
            "and gives a code; show that to the user, and call again with confirm=CODE if they agree.",
            {
                "out": {"type": "string", "required": True, "description": "A folder that does not exist yet."},
                "pid": {"type": "integer", "minimum": 1, "description": "The launcher or a rank."},
                "confirm": {"type": "string", "description": "The code that the first call gave."},
            },
            lambda arguments: _collect(arguments, asked), reads_only=False,
        ),
    ]  # fmt: skip


def _existing(texts: Sequence[str]) -> list[Path]:
    missing = [text for text in texts if not Path(text).exists()]
    if missing:
        raise UsageError(f"no such file or folder: {missing[0]}", "Give paths on the host that this server runs on.")
    return [Path(text) for text in texts]


def _diagnose(arguments: Arguments) -> tuple[str, Document]:
    from whichrank.flows.diagnose.pipeline import diagnose
    from whichrank.report import text
    from whichrank.report.json import as_document

    source = arguments.get("source")
    told = diagnose(
        _existing(arguments["paths"]), source=_existing([source])[0] if source else None, why=bool(arguments.get("why"))
    )
    return "".join(text.render(told)), shortened(as_document(told))


def _explain(arguments: Arguments) -> tuple[str, Document]:
    from whichrank.flows.explain import as_document, explain, near

    found = explain(arguments["words"])
    lines = [f"{r.title}\n{r.text}\n" + "".join(f"Fix: {step}\n" for step in r.fix) for r in found]
    nothing = f"nothing is known of it; near it: {', '.join(near(arguments['words'])) or 'nothing'}"
    return "\n".join(lines) or nothing, as_document(found)


def _env_lint(arguments: Arguments) -> tuple[str, Document]:
    from whichrank.flows.env.lint import lint, present_environment, read_path
    from whichrank.report._environment import findings_document

    given = _existing(arguments.get("paths") or [])
    files = [file for path in given for file in read_path(path)] if given else present_environment()
    result = lint(files, torch=arguments.get("torch"), nccl=arguments.get("nccl"))
    return _findings(result.findings), findings_document(result.findings, result.coverage)


def _lint(arguments: Arguments) -> tuple[str, Document]:
    from whichrank.flows.lint.check import lint
    from whichrank.report._lint_json import render

    result = lint(
        _existing(arguments["paths"]), select=arguments.get("select") or [], ignore=arguments.get("ignore") or []
    )
    return _findings(result.findings), json.loads("".join(render(result.findings, result.coverage, result.suppressed)))


def _compare(arguments: Arguments) -> tuple[str, Document]:
    from whichrank.flows.compare.inputs import compare

    a, b = _existing([arguments["a"], arguments["b"]])
    found, looked = compare(a, b)
    lines = [f"{number}. {d.what}: {d.a} -> {d.b} ({d.why})" for number, d in enumerate(found[:MOST], 1)]
    document = {"schema_version": 1, "differences": [d.as_json() for d in found[:MOST]], "looked_at": looked}
    return "\n".join(lines) or "no difference", document


def _collect(arguments: Arguments, asked: Confirmations) -> tuple[str, Document]:
    out, pid = Path(arguments["out"]), arguments.get("pid")
    if out.exists():
        raise UsageError(f"'{out}' exists already", "Name a folder that does not exist yet.")
    code = arguments.get("confirm")
    if not code or not asked.accept("collect", arguments, code):
        whose = f"the job of process {pid}" if pid else "the job that runs on this host"
        does = (
            f"This will read stacks, dumps and settings of every rank of {whose} and write them to {out}. The job goes "
            "on; a rank may pause for a moment while it is looked at. Call collect again with the same arguments and "
            "confirm."
        )
        fresh = asked.ask("collect", arguments)
        return f"{does}\nconfirm: {fresh}", {"done": False, "will": does, "confirm": fresh}
    from whichrank.run.watch.collect import collect

    manifest = collect(pid, out).manifest
    missing = [f"{entry.what}: {entry.why}" for entry in manifest.missing[:20]]
    told = f"{len(manifest.files)} files are in {out}; diagnose that folder next."
    return told, {"done": True, "out": str(out), "files": len(manifest.files), "missing": missing}


def _findings(findings: Sequence[Any]) -> str:
    lines = [
        f"{f.evidence[0].source}:{f.evidence[0].locator.removeprefix('line ')}: {f.code} {f.severity}: {f.message}"
        + "".join(f"\n    fix: {step}" for step in f.fix[:2])
        for f in findings[:MOST]
    ]
    return "\n".join(lines) or "no findings"


def shortened(document: Document) -> Document:
    """Lists of ranks and files cut to what an agent can read; the verdict, findings and next steps are whole."""
    found = dict(document)
    for name in ("ranks", "groups", "waits"):
        found[name] = list(found.get(name) or [])[:MOST]
    coverage = dict(found["coverage"])
    coverage["sources"] = list(coverage.get("sources") or [])[:MOST]
    found["coverage"] = coverage
    return found
