"""The environment as evidence: by allow-list, and without what looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

ALLOWED = re.compile(
    r"^(?:NCCL_|TORCH_|TORCHELASTIC_|PET_|GLOO_|CUDA_|OMP_|MKL_|UCX_|FI_|SLURM_|OMPI_|PMI|MASTER_|ROCR_|HIP_|RCCL_"
    r"|RANK$|LOCAL_RANK$|WORLD_SIZE$|LOCAL_WORLD_SIZE$|GROUP_RANK$|ROLE_RANK$|NODE_RANK$|PYTHONFAULTHANDLER$"
    r"|PYTHONUNBUFFERED$|HOSTNAME$|NVIDIA_VISIBLE_DEVICES$|ACCELERATE_|DEEPSPEED_|FSDP_)"
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH|COOKIE|PRIVATE", re.IGNORECASE)
# user:password@host, and long runs that no setting needs.
_SECRET_VALUE = re.compile(r"://[^/\s:@]{1,100}:[^/\s@]{1,200}@|\b(?:hf_|ghp_|gho_|sk-|AKIA|xox[bap]-)[\w-]{8,}")
REMOVED = "<removed>"


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """What may go into a bundle."""
    return {name: redacted(name, value) for name, value in sorted(environ.items()) if ALLOWED.match(name)}


def redacted(name: str, value: str) -> str:
    if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
        return REMOVED
    return value


def as_text(environ: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in kept(environ).items())
