"""Which kind of file this is, and what it sets."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import in_family, is_read
from whichrank.facts.variables.releases import said_in
from whichrank.model.evidence import Ref
from whichrank.records.launches import Count
from whichrank.records.settings import SettingsFile
from whichrank.source import launch_fit, launcher_names
from whichrank.source.places import spelled_options, told_dscp, told_interfaces, told_units

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Neighbour

SIZE_LIMIT = 8 * 1024 * 1024
# Kind -> the module that reads it and its function, imported only when there is something of that kind.
KINDS = {
    "shell": "shell.read",
    "dockerfile": "formats.dockerfile.read",
    "manifest": "formats.manifest.read",
    "json": "formats.manifest.read_json",
    "python": "program.read",
    "systemd": "formats.systemd.read",
    "makefile": "formats.makefile.read",
    "justfile": "formats.justfile.read",
    "fish": "formats.fish.read",
    "csh": "formats.csh.read",
    "htcondor": "formats.condor.read",
    "nomad": "formats.nomad.read",
    "toml": "formats.toml_tree.read",
    "env-file": "formats.env_file.read",
    "hostfile": "formats.hostfile.read",
    "supervisor": "formats.supervisor.read",
    "nccl.conf": "conf.read",
    "environment": "captured.read",
}
_SUFFIXES = {
    ".py": "python", ".sh": "shell", ".bash": "shell", ".zsh": "shell", ".sbatch": "shell", ".slurm": "shell",
    ".slrm": "shell", ".pbs": "shell", ".lsf": "shell", ".job": "shell", ".csh": "csh", ".tcsh": "csh",
    ".batch": "shell", ".bsub": "shell", ".qsub": "shell", ".sge": "shell", ".ksh": "shell",
    ".yaml": "manifest", ".yml": "manifest", ".dockerfile": "dockerfile", ".json": "json", ".jsonc": "json",
    ".environ": "environment", ".mk": "makefile", ".env": "env-file",
    ".just": "justfile", ".fish": "fish", ".sub": "htcondor", ".condor": "htcondor", ".submit": "htcondor",
    ".nomad": "nomad", ".hcl": "nomad", ".toml": "toml",
    ".service": "systemd", ".timer": "systemd", ".socket": "systemd",
}  # fmt: skip
# Formats that may set variables and that are not read; said to be so instead of "clean".
_UNREADABLE = {
    ".tf": "Terraform", ".ps1": "PowerShell", ".xsh": "xonsh",
    ".rb": "Ruby", ".groovy": "Groovy", ".lua": "Lua", ".ipynb": "a notebook", ".jl": "Julia",
    ".bat": "a Windows batch file", ".cmd": "a Windows batch file",
    ".nix": "Nix", ".cue": "CUE", ".jsonnet": "Jsonnet", ".libsonnet": "Jsonnet",
    ".ini": "INI", ".cfg": "INI", ".xml": "XML", ".go": "Go", ".ts": "TypeScript", ".js": "JavaScript",
    ".def": "a Singularity definition", ".star": "Starlark",
    ".dhall": "Dhall", ".pl": "Perl", ".tcl": "Tcl", ".nu": "nushell",
}  # fmt: skip


def _by_name(name: str) -> str:
    path = PurePosixPath(name)
    base = path.name.lower()
    if base == "nccl.conf" or base.endswith(".nccl.conf"):
        return "nccl.conf"
    if base.startswith(("dockerfile", "containerfile")) or base.endswith((".dockerfile", ".containerfile")):
        return "dockerfile"
    if base in {"makefile", "gnumakefile"} or base.startswith("makefile."):
        return "makefile"
    if base in {"justfile", ".justfile"} or base.endswith(".justfile"):
        return "justfile"
    if base.endswith(("deepspeed_env", ".env")) or base.startswith(".env."):
        return "env-file"
    if base.endswith(".conf") and "systemd" in name:
        return "systemd"
    return _SUFFIXES.get(path.suffix.lower(), "")


def is_named(name: str) -> bool:
    """The name alone says what kind of file it is."""
    return bool(_by_name(name))


def speaks_of_settings(head: bytes) -> bool:
    """A file without a telling name in which one of the variables stands."""
    return bool(re.search(rb"\b(?:TORCH_)?(?:NCCL|GLOO|FR)_[A-Z][A-Z0-9_]+", head)) and b"\0\0" not in head


def is_capture(head: bytes) -> bool:
    """A file without a telling name that begins as a captured environment does."""
    from whichrank.source import captured

    text = head.decode("utf-8", "backslashreplace")
    return captured.looks_like(text.replace("\0", "\n"))


_CSH = re.compile(r"\A#!\s*\S*?(?:env\s+)?\bt?csh\b|^#(?:PBS|\$)\s+-S\s+\S*\bt?csh\b", re.MULTILINE)


def kind_of(name: str, text: str) -> str:
    """The kind of a file, by its name, else by how it begins; empty where nothing reads it."""
    named = _by_name(name)
    if named == "env-file" and re.search(r"^PATH=", text, re.MULTILINE) and re.search(r"^HOME=", text, re.MULTILINE):
        return "environment"  # `env > rank0.env`
    if named == "shell" and _CSH.search(text):
        return "csh"
    if named:
        return named
    if "\0" in text:
        return "environment"
    if PurePosixPath(name).suffix.lower() in _UNREADABLE:
        return ""
    return _by_content(text)


def _by_content(text: str) -> str:
    first = next((line for line in text.split("\n", 50) if line.strip()), "")
    if first.startswith("#!"):
        return _by_interpreter(first)
    if re.match(r"(?:# syntax=|ARG\s|FROM\s+\S)", first) and re.search(r"^FROM\s+\S", text, re.MULTILINE):
        return "dockerfile"
    if first.lstrip().startswith("{") and re.search(r'"[\w.-]+"\s*:', text):
        return "json"
    from whichrank.source import captured
    from whichrank.source.formats import hostfile

    if hostfile.looks_like(text):
        return "hostfile"
    for kind, pattern in _TELLING.items():
        if kind == "python" and captured.looks_like(text):
            return "environment"
        if re.search(pattern, text, re.MULTILINE):
            return kind
    return ""


# Kind -> what stands in a file of it; tried in this order.
_TELLING = {
    "systemd": r"^\[(?:Service|Unit)\]\s*$",
    "supervisor": r"^\[program:[^\]\n]+\]\s*$",
    "": r"\A(?:\s*[#;][^\n]*\n|\s*\n)*\[[\w:. -]+\]\s*$",  # sections of some other configuration
    "manifest": r"^(?:apiVersion|kind|services|version|envs|num_nodes|runtime_env|env_vars):",
    "python": r"^(?:import|from)\s+\w[\w.]*(?:\s+import\b|\s*$|\s+as\b)",
    "makefile": r"^[\w.-]+\s*:(?!=).*\n\t",
    "shell": (
        r"^\s*(?:export\s+\w+|(?:\w+=\S*\s+)*(?:torchrun|srun|mpirun|mpiexec|python3?|accelerate|deepspeed|docker|env"
        r"|sudo|ssh)\s|if\s+\[|for\s+\w+\s+in\s|set\s+-|source\s|setenv\s|[A-Za-z_]\w*=|#SBATCH|#PBS|#BSUB)"
    ),
}


def _by_interpreter(first: str) -> str:
    if "python" in first:
        return "python"
    if "fish" in first:
        return "fish"
    if "make" in first:
        return "makefile"
    if re.search(r"\bt?csh\b", first):
        return "csh"
    return "shell" if re.search(r"\b(?:ba|z|da|k)?sh\b|\bslurm\b", first) else ""


def read(data: bytes, label: str, kind: str | None = None, neighbour: Neighbour | None = None) -> SettingsFile:
    """What one file sets. Bytes that are no UTF-8 are spelled out; only the first megabytes are read."""
    text = data[:SIZE_LIMIT].decode("utf-8", "backslashreplace")
    chosen = kind or kind_of(label, text)
    if not chosen:
        return _unread(label)
    module, _, function = KINDS[chosen].rpartition(".")
    reader = getattr(import_module(f"whichrank.source.{module}"), function)
    text = text if chosen == "environment" else text.replace("\r\n", "\n")
    try:
        out: SettingsFile = (
            reader(text, label, neighbour=neighbour) if chosen in {"shell", "csh"} else reader(text, label)
        )
    except RecursionError:
        out = SettingsFile.empty(label, "unread")
        out.unread, out.note = True, "it is nested too deeply"
        return out
    _refers_to_itself(out, text)
    out.rocm = bool(_ROCM.search(text))
    out.told_devices = frozenset(name for row in _COMMENT.findall(text) for name in _DEVICE.findall(row))
    _described(out, text, label)
    _said_gpus(out, text, label)
    told_interfaces.check(out, text)
    told_dscp.check(out, text)
    told_units.check(out, text)
    spelled_options.place(out.launches, text.split("\n"), label)
    out.clashes += launcher_names.misspelt(text, label)
    launch_fit.check(out, text)
    if len(data) > SIZE_LIMIT:
        out.note = f"only the first {SIZE_LIMIT // 1024 // 1024} MiB were read"
    return out


_COMMENT = re.compile(r"^[ \t]{0,80}(?:#|//)[^\n]{0,400}", re.MULTILINE)
_DEVICE = re.compile(r"\b(?:mlx[45]|irdma|hfi1|qedr)_\d{2}\b")
_ROCM = re.compile(
    r"^(?![ \t]{0,80}(?:#|//))[^\n]{0,300}?(?:rocm|amd\.com/gpu|\b(?:HIP|HSA|ROCR|RCCL)_[A-Z])",
    re.MULTILINE | re.IGNORECASE,
)


def _refers_to_itself(out: SettingsFile, text: str) -> None:
    """Names that no library reads and that some script of the file does (`$NCCL_SPEED_CLASS`) are its own."""
    unknown = {a.name for a in out.assignments if in_family(a.name) and not is_read(a.name)}
    mentioned = unknown & set(re.findall(r"\$[{(]?([A-Z][A-Z0-9_]{2,80})", text)) if unknown else unknown
    if mentioned:
        out.assignments[:] = [a._replace(used=a.used or a.name in mentioned) for a in out.assignments]


_PRODUCTION = re.compile(r"(?:^|[-_.])prod(?:uction)?(?:[-_.]|$)", re.IGNORECASE)
# Comments at the top, descriptions, and the names that a job, its partition or its queue have.
_HEADING = re.compile(
    r"\A(?:#[^\n]*\n|[^\S\n]*\n){1,12}|^(?:#SBATCH|#PBS|#BSUB)[^\n]*|^Description=[^\n]*"
    r"|^[^\S\n]*\"?(?:name|description)\"?: [^\n]*",
    re.MULTILINE,
)
_SAYS_PRODUCTION = re.compile(r"\bproduction\b(?! of\b)|(?:^|[\s=_-])prod(?:[\s_-]|$)", re.IGNORECASE | re.MULTILINE)
_DENIES = re.compile(r"\b(?:not?|never|non|pre|before|until|unlike|instead|without|dev\w*|staging)\b", re.IGNORECASE)
_TRIAL = re.compile(
    r"debug|repro\b|reproduc|smoke|profil|sanity|diagnos|bench|(?:\b|_)(?:tests?|dev|development|staging|ci)(?:\b|_)",
    re.IGNORECASE,
)
_STAGE = re.compile(r"(?:[A-Z]+_)?(?:ENV|ENVIRONMENT|STAGE|TIER)")


_HEAD = re.compile(r"(?:(?:function|def|class) )?([^:(={]{1,80})(?:\(|:(?!=)|\s\{)")
_NAMED = re.compile(r"-\s{1,8}(?:name|id|stage|task|job):\s{0,8}(\S{1,80})")
_TRIAL_BLOCK = re.compile(
    rf"{_TRIAL.pattern}|pre[-_]?flight|verbose|trac(?:e|ing)|health|net[-_]?check|nccl[-_]?tests?|burn[-_]?in",
    re.IGNORECASE,
)


def _trial_rows(rows: list[str]) -> set[int]:
    """Lines inside of blocks with a name for debugging or tests: a target, a service, a function."""
    found: set[int] = set()
    around: list[tuple[int, bool]] = []  # of each open block its indentation, and whether it is for tests
    for line, row in enumerate(rows, 1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        depth = _indented(row)
        while around and around[-1][0] >= depth:
            around.pop()
        inside = bool(around) and around[-1][1]
        found |= {line} if inside else set()
        head = _NAMED.match(row.lstrip()) or _HEAD.match(row.lstrip())
        around.append((depth, inside or bool(head and _TRIAL_BLOCK.search(head[1]))))
    return found


def _indented(row: str) -> int:
    return len(row) - len(row.lstrip())


def _described(out: SettingsFile, text: str, label: str) -> None:
    """What the file's name and comments say of the job, where nothing firmer does."""
    about = "\n".join(_HEADING.findall(text)[:12])
    said = any(_SAYS_PRODUCTION.search(row) and not _DENIES.search(row) for row in about.split("\n"))
    if said or _PRODUCTION.search(PurePosixPath(label).name):
        out.production.add(label)
    out.trial = bool(_TRIAL.search(PurePosixPath(label).name) or _TRIAL.search(about))
    out.trial_lines = _trial_rows(text.split("\n"))
    out.production.update(
        a.scope
        for a in out.assignments
        if _STAGE.fullmatch(a.name) and (a.value or "").lower() in {"prod", "production"}
    )
    if not out.torch and not out.nccl and not out.pinned and "#" in text:
        out.torch, out.nccl = said_in(re.findall(r"(?:^|\s)#(?!SBATCH|PBS|BSUB|!)([^\n]*)", text))


_IN_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "sixteen": 16}
_HOSTS = r"(?:hosts?|nodes?|machines?|servers?|boxes|box|workers?|VMs?)"
_MANY = rf"(\d{{1,2}}|{'|'.join(_IN_WORDS)})"
_DEVICES = r"(?:(?:NVIDIA\s+)?[A-Z]{1,8}\d{1,4}\w{0,12}(?:\s+GPUs?)?|GPUs?)"
_GPUS_EACH = re.compile(
    rf"^[^\S\n]*#[^\n]*?\b(?:{_MANY}(?:\s*x\s*|\s+){_DEVICES}"
    rf"\s*(?:,?\s+each\b|(?:/|\s+per\s+|\s+(?:on|in)\s+(?:each|every)\s+){_HOSTS}\b)"
    rf"|(?:each|every)(?:\s+{_HOSTS})?\s+(?:has|have|with)\s+{_MANY}(?:\s*x\s*|\s+){_DEVICES}\b"
    rf"|(?:\d{{1,3}}|{'|'.join(_IN_WORDS)})\s+{_HOSTS}\s*(?:x|\*|of|with)\s*{_MANY}(?:\s*x\s*|\s+){_DEVICES}\b)",
    re.IGNORECASE | re.MULTILINE,
)


def _said_gpus(out: SettingsFile, text: str, label: str) -> None:
    """`# four hosts with 8 GPUs each`, where nothing firmer says what a host has."""
    said = {_counted(match): match for match in _GPUS_EACH.finditer(text)}
    if len(said) != 1:
        return
    number, match = next(iter(said.items()))
    ref = Ref(label, f"line {text.count(chr(10), 0, match.start()) + 1}", match.group().strip()[:300])
    for launch in out.launches:
        if launch.gpus is None and launch.visible is None and launch.several and number:
            launch.gpus = Count(number, ref, "the comment")


def _counted(match: re.Match[str]) -> int:
    text = (match[1] or match[2] or match[3]).lower()
    return _IN_WORDS.get(text) or int(text)


def _unread(label: str) -> SettingsFile:
    out = SettingsFile.empty(label, "unread")
    format_ = _UNREADABLE.get(PurePosixPath(label).suffix.lower())
    what = f"{format_} is not a format that is read" if format_ else "the format was not recognised"
    out.unread, out.note = True, f"{what}; say --as what it is if it is one of those"
    return out
