"""What the keys of a manifest mean: which hold variables, which hold scripts, and which are prose."""

from __future__ import annotations

import re

from whichrank.facts.variables.environment import catalogue, in_family, turned

ENVIRONMENT = re.compile(
    r"(?:\w*[a-z_])?(?:env|Env|ENV)(?:s|_?vars?|Vars?|_?variables?|Variables?|ironment(?:_?[vV]ariables?)?)?"
    r"|environment(?:_?[vV]ariables?)?|Environment|variables"
)
PROSE = re.compile(
    r"(?:pod_?)?annotations|\w*Annotations|labels|notes?|description|comments?|docs?|documentation|message|summary|title"
    r"|help|readme|changelog|NOTES\.txt|.*\.(?:md|txt|rst)|motd|(?:liveness|readiness|startup)Probe|lifecycle",
    re.IGNORECASE,
)
SCRIPTS = re.compile(
    r"run|setup|script|scripts|command|commands|cmd|cmds|shell|entrypoint|\w*_commands|before_script|after_script|source|inline"
    r"|bash_command|user_?data|runcmd|prolog|epilog|launch|start_command|setup_command|\w*\.(?:sh|bash|sbatch|slurm)"
)
RUNTIME_ENVIRONMENT = frozenset({
    "env_vars", "working_dir", "py_modules", "py_executable", "excludes", "pip", "uv", "conda", "container",
    "image_uri", "config", "nsight", "worker_process_setup_hook", "eager_install",
})  # fmt: skip
OWN_PARTS = frozenset({"env", "environment", "command", "args", "entrypoint", "image", "build", "source"})
OWN_SHELLS = re.compile(
    r"cmds|(?:head_|worker_)?(?:setup|initialization|start_ray)_commands|(?:head|worker)_(?:setup|start_ray)_commands"
)


def is_setting(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Z][A-Z0-9_]*", name)) and (
        in_family(name) or name in catalogue() or bool(turned(name))
    )
