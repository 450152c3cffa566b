"""The options that reach many hosts; every verb that does takes the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.fleet.engines import Engine

F = TypeVar("F", bound=Callable[..., Any])


def fleet_options(command: F) -> F:
    """Add the options; their values are what `engine_of` takes."""
    for option in reversed(
        (
            click.option("--hosts", default="", metavar="A,B,C", help="Hosts to reach by ssh; node[01-16] works too."),
            click.option("--hostfile", type=click.Path(dir_okay=False, exists=True, path_type=Path),
                         help="A file with one host per line (Open MPI, DeepSpeed and MPICH write them)."),
            click.option("--mpi-hostfile", type=click.Path(dir_okay=False, exists=True, path_type=Path),
                         help="The hostfile of mpirun; the same as --hostfile."),
            click.option("--ssh", default="ssh", show_default=True, help="The ssh command, with its options."),
            click.option("--slurm", is_flag=True, help="All nodes of this Slurm allocation, by srun."),
            click.option("--slurm-job", metavar="ID", help="The nodes of that Slurm job."),
            click.option("--k8s", metavar="[NAMESPACE/]SELECTOR", help="The pods with these labels, by kubectl exec."),
            click.option("--k8s-container", metavar="NAME", help="The container in the pods."),
            click.option("--ray", "ray_address", metavar="ADDRESS", help='The nodes of a Ray cluster ("auto").'),
            click.option("--remote-python", metavar="PATH", help="Python on those hosts (default: same path)."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def engine_of(options: dict[str, Any], connect_s: int = 10) -> Engine:
    """Take the options out, and say which engine they mean; this host without any."""
    hosts, hostfile, ssh = options.pop("hosts"), options.pop("hostfile"), options.pop("ssh")
    mpi = options.pop("mpi_hostfile")
    slurm, job = options.pop("slurm"), options.pop("slurm_job")
    k8s, container, ray = options.pop("k8s"), options.pop("k8s_container"), options.pop("ray_address")
    given = [name for name, value in (("--hosts", hosts), ("--hostfile", hostfile), ("--mpi-hostfile", mpi),
                                      ("--slurm-job" if job else "--slurm", slurm or job), ("--k8s", k8s),
                                      ("--ray", ray)) if value]  # fmt: skip
    hostfile = hostfile or mpi
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are different ways to name hosts", "Give one of them.")
    if hosts or hostfile:
        from whichrank.fleet.engines import ssh as engines

        names, slots = engines.read_hostfile(hostfile) if hostfile else (engines.expand(hosts), {})
        return engines.engine(names, slots, ssh, connect_s)
    if slurm or job:
        from whichrank.fleet.engines import slurm as slurm_engine

        return slurm_engine.engine(job)
    if k8s:
        from whichrank.fleet.engines import kubernetes

        return kubernetes.engine(k8s, container)
    if ray:
        from whichrank.fleet.engines.ray_nodes import engine as ray_engine

        return ray_engine(ray)
    from whichrank.fleet.engines import here

    return here.engine()


def named(options: dict[str, Any]) -> bool:
    """Whether any host is named."""
    ways = ("hosts", "hostfile", "mpi_hostfile", "slurm", "slurm_job", "k8s", "ray_address")
    return any(options[name] for name in ways)


def engines_of(options: dict[str, Any], connect_s: int = 5) -> list[Engine]:
    """The engine that the options mean, and what to try where it fails: the nodes of a Slurm job by ssh."""
    from whichrank.fleet.engines import ssh as engines

    ssh = options["ssh"]
    first = engine_of(options, connect_s)
    return [first, engines.engine(first.hosts, ssh=ssh, connect_s=connect_s)] if first.name == "slurm" else [first]


def python_of(options: dict[str, Any]) -> str:
    """The Python that runs helpers on the hosts."""
    import sys

    return str(options.pop("remote_python") or os.environ.get("WHICHRANK_REMOTE_PYTHON") or sys.executable)
