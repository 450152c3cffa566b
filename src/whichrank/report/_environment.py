"""Settings as the text of a shell, Dockerfile, env file, manifest, Slurm option or Python program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from whichrank.model.settings import Setting

if TYPE_CHECKING:
    from whichrank.model.evidence import Coverage
    from whichrank.model.findings import Finding

Writer = Callable[[Iterable[Setting], str], Iterator[str]]


def _comment(setting: Setting) -> str:
    from textwrap import fill

    return fill(setting.reason, 100, initial_indent="# ", subsequent_indent="# ")


def shell(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """Exports that leave alone what is set already."""
    yield "# Give each job a folder of its own (--out). It has to exist on every host: nobody else makes it.\n"
    settings = list(settings)
    inside = [s for s in settings if out in s.value]
    yield f"if {_is_own(out)}; then\n" if inside else f"{_is_own(out)}\n"
    for s in inside:
        yield "".join(f"  {line}\n" for line in [*_comment(s).splitlines(), _export(s)])
    if inside:
        yield f"else\n  echo {_quoted(f'{out} belongs to another user: no dumps (give --out)')} >&2\nfi\n"
    for s in settings:
        if s not in inside:
            yield f"{_comment(s)}\n{_export(s)}\n"


def _is_own(out: str) -> str:
    """Make the folder, and ask whether it is ours: in /tmp somebody else may have been faster."""
    return f"mkdir -p -m 700 {_quoted(out)} && [ -O {_quoted(out)} ] && [ ! -L {_quoted(out)} ]"


def _export(setting: Setting) -> str:
    return f'export {setting.name}="${{{setting.name}:-{_escaped(setting.value)}}}"'


def docker(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """Instructions of a Dockerfile."""
    yield f"RUN mkdir -p {_quoted(out)}\n"
    for s in settings:
        yield f"{_comment(s)}\nENV {s.name}={_quoted(s.value)}\n"


def env_file(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """A file for `docker run --env-file`; it takes values as they stand."""
    yield f"# {out} has to exist where the ranks run.\n"
    for s in settings:
        yield f"{_comment(s)}\n{s.name}={s.value}\n"


def kubernetes(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """The `env` of a container."""
    yield f"# {out} has to exist in the container: mount a volume there.\nenv:\n"
    for s in settings:
        yield f"{_comment(s)}\n- name: {s.name}\n  value: {json.dumps(s.value)}\n"


def slurm(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """`--export` of srun and sbatch; it splits at commas, so values with commas are exported before."""
    from textwrap import fill

    plain = []
    yield f"{_is_own(out)} || exit 1  # somebody else's folder: give --out\n"
    for s in settings:
        if "," in s.value:
            yield f"{_comment(s)}\n# (--export would split its value at the commas)\n"
            yield f"{_export(s)}\n"
        else:
            plain.append(s)
    for s in plain:
        yield f"{fill(s.name + ': ' + s.reason, 100, initial_indent='# ', subsequent_indent='#   ')}\n"
    yield f'srun --export=ALL,{",".join(f"{s.name}={_quoted(s.value)}" for s in plain)} "$@"\n'


def python(settings: Iterable[Setting], out: str) -> Iterator[str]:
    """Lines for the top of a program, above `import torch`."""
    yield f"import os\n\nos.makedirs({out!r}, 0o700, exist_ok=True)\n"
    yield f"if os.lstat({out!r}).st_uid != os.getuid():\n    raise SystemExit({out + ' belongs to another user'!r})\n"
    for s in settings:
        yield f"{_comment(s)}\nos.environ.setdefault({s.name!r}, {s.value!r})\n"


WRITERS: dict[str, Writer] = {
    "shell": shell,
    "docker": docker,
    "env-file": env_file,
    "kubernetes": kubernetes,
    "slurm": slurm,
    "python": python,
}


def _quoted(value: str) -> str:
    """As one word of a shell or of a Dockerfile."""
    return value if re.fullmatch(r"[\w%+,./:=@^-]+", value) else "'" + value.replace("'", "'\\''") + "'"


def _escaped(value: str) -> str:
    """Inside double quotes and ${…}."""
    return re.sub(r'([\\"$`}])', r"\\\1", value)


def findings_document(findings: Iterable[Finding], coverage: Coverage) -> dict[str, Any]:
    """What `env lint` writes as JSON: the same shapes as `diagnose`, without loading what that needs."""
    return {
        "schema_version": 1,
        "findings": [
            {
                "id": f"f{index}",
                "code": found.code,
                "cause": found.cause,
                "severity": found.severity,
                "confidence": found.confidence,
                "subject": to_builtins(found.subject),
                "message": found.message,
                "evidence": to_builtins(found.evidence),
                "fix": list(found.fix),
                "consequence_of": [],
            }
            for index, found in enumerate(findings)
        ],
        "coverage": {
            "sources": [{**to_builtins(source), "note": source.note or None} for source in coverage.sources],
            "rules": {
                "found": list(coverage.found),
                "clear": list(coverage.clear),
                "not_evaluated": to_builtins(coverage.not_evaluated),
            },
        },
    }
