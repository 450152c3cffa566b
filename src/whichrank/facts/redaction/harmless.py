"""What is never replaced: names that everybody has, and words that evidence is made of."""

from __future__ import annotations

import re
from functools import cache

from whichrank.facts.tables import HERE

USERS = frozenset(
    [
        "root",
        "ubuntu",
        "ec2-user",
        "nobody",
        "daemon",
        "user",
        "admin",
        "runner",
        "jovyan",
        "mambauser",
        "vscode",
        "slurm",
        "munge",
        "shared",
        "public",
        "common",
        "app",
        "appuser",
        "docker",
        "sagemaker-user",
        "opc",
        "azureuser",
        "centos",
        "debian",
        "rocky",
        "fedora",
        "hadoop",
        "spark",
        "ray",
        "nvidia",
        "nonroot",
        "guest",
        "default",
        "users",
        "home",
        "scratch",
        "data",
        "datasets",
        "projects",
        "project",
        "work",
        "lost+found",
        "anonymous",
        "unknown",
        "none",
        "null",
        "git",
        "www-data",
        "systemd-network",
        "systemd-resolve",
        "messagebus",
        "sshd",
        "syslog",
        "postgres",
        "mysql",
        "redis",
        "nginx",
        "kube-system",
    ]
)
"""Accounts that images and packages create: Debian, Ubuntu, cloud images, Jupyter, SageMaker, Slurm."""

HOSTS = frozenset(
    [
        "localhost",
        "localhost4",
        "localhost6",
        "ip6-localhost",
        "ip6-loopback",
        "localdomain",
        "none",
        "null",
        "unknown",
        "any",
        "all",
        "self",
        "host",
        "hostname",
        "node",
        "true",
        "false",
        "auto",
        "default",
        "0",
        "static",
        "env",
        "file",
        "tcp",
    ]
)

DOMAINS = frozenset(
    [
        "pytorch.org",
        "github.com",
        "github.io",
        "githubusercontent.com",
        "nvidia.com",
        "python.org",
        "pypi.org",
        "pythonhosted.org",
        "huggingface.co",
        "readthedocs.io",
        "readthedocs.org",
        "kernel.org",
        "gnu.org",
        "debian.org",
        "ubuntu.com",
        "w3.org",
        "apache.org",
        "wandb.ai",
        "docker.io",
        "docker.com",
        "nvcr.io",
        "open-mpi.org",
        "openmpi.org",
        "schedmd.com",
        "kubernetes.io",
        "k8s.io",
        "kubeflow.org",
        "arxiv.org",
        "mozilla.org",
        "json-schema.org",
        "sourceware.org",
        "tensorflow.org",
        "launchpad.net",
        "anaconda.org",
        "anaconda.com",
        "conda.io",
        "intel.com",
        "amd.com",
        "openucx.org",
        "ietf.org",
        "iana.org",
        "stackoverflow.com",
        "wikipedia.org",
        "llvm.org",
        "cmake.org",
        "lightning.ai",
        "microsoft.com",
        "freedesktop.org",
        "systemd.io",
        "prometheus.io",
        "grafana.com",
        "opentelemetry.io",
        "golang.org",
        "rust-lang.org",
    ]
)
"""Public sites of the software that jobs are made of: links to their pages help."""

# Interfaces, devices and the words that logs put before a colon and a number: they look like hosts with a port.
DEVICE = re.compile(
    r"(?:rank|local_rank|default|eth|ib|ibp|ibs|en[opsx]|ens|eno|mlx\d|bond|lo|docker|veth|br|cuda|gpu|npu|xpu|hpu|rank|"
    r"nvme|sd[a-z]|hfi\d|roce|bnxt_re|irdma|rdmap|efa|hsn|nvlink|nvswitch|tun|tap|wlan|virbr|cni|flannel|cali|ifb|"
    r"tty|pts|numa|cpu|core|step|epoch|iter|stage|layer|block|channel|stream|thread|group|pg|comm|net|device|dev|port|"
    r"line|col|row|page|part|shard|chunk|worker|pid|tid|uid|gid|job|task|proc|process|attempt|round|level|phase|trial|"
    r"fold|seed|version|v|py|cp|sm|cu|rev|build|patch|test|case|item|entry|index|idx|slot|lane|rail|plane|pod|id)"
    r"[-_.]?[a-z]?\d*(?:[a-z]{1,2}\d+)*(?:np\d+|f\d+)?",
    re.IGNORECASE,
)
CODE_FILE = re.compile(
    r"\.(?:py|pyc|pyx|cpp|cc|cxx|cu|cuh|c|h|hpp|go|rs|js|ts|java|sh|so|log|txt|json|yaml|yml|md|toml|cfg|ini|csv|err|out|"
    r"pkl|pt|bin|gz|xz|zst|tar|zip|env|words|html|xml|sbatch|conf)(?:\.\d+)*$",
    re.IGNORECASE,
)
EXCEPTION = re.compile(r"\.\w*(?:error|exception|interrupt|warning|exit)$", re.IGNORECASE)
"""An exception's class with its module: `torch.distributed.DistBackendError` has the form of a host with its domain."""


@cache
def common_words() -> frozenset[str]:
    """Words of whichrank's own patterns and messages, and of the trade: renaming one could change a verdict."""
    return frozenset((HERE / "redaction" / "common_words.txt").read_text(encoding="utf-8").split())


def is_common(name: str) -> bool:
    """A common word, or several of them joined (all-reduce)."""
    words = common_words()
    name = name.lower()
    return name in words or ("-" in name and all(part in words for part in name.split("-")))


def is_public_domain(domain: str) -> bool:
    labels = domain.lower().rstrip(".").split(".")
    return any(".".join(labels[at:]) in DOMAINS for at in range(len(labels) - 1))


def is_device(name: str) -> bool:
    """eth0, mlx5_0, cuda:0, rank3, step100: a word and a number, no host's own name."""
    return any(map(str.isdigit, name)) and DEVICE.fullmatch(name) is not None
