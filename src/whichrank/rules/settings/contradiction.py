"""Settings that undo each other, or undo the evidence.

What it finds: blocking wait (it removes the watchdog, and with it the dump); error handling switched off; a dump asked
of a recorder that is off; one setting under two names with two values; InfiniBand disabled and demanded; devices of UCX
that none of its transports uses; limits that cross; a log file without a log; a launch that does not fit what it is
given: more (or fewer) processes than GPUs, another number of hosts than the job has, more ranks than MPI or the
scheduler has places for, a launcher per rank that starts ranks itself, more threads than CPUs; a launch line that every
host runs and that says the same host number, its own host's name or a port of its own on each of them; $SLURM_PROCID
(and its like) filled in before the tasks exist; WORLD_SIZE of one host; a list of hosts as an address; options of
torchrun behind the script; two jobs on one port; directives behind the first command; too little /dev/shm or locked
memory; an interface that the pod or container does not have; more workers of Ray than its pods have GPUs for; a branch
on the rank that gives ranks different values of what all must share; a loopback address for several hosts; launch lines
of one job that name different meeting points, the same number twice, or fewer members than they wait for; branches on
the host's number that meet at different ports; RANK that counts on its own host only; a batch of DeepSpeed that is not
the product of its parts; a host that stands twice in DeepSpeed's hostfile; settings of NCCL where every program
communicates by gloo; configurations of DeepSpeed and Accelerate that these refuse or ignore; loader workers on the 64
MiB of /dev/shm that containers have by default; workers that are left more time to stop than what stops them; a batch
script that starts torchrun on its first host only; units that hide the GPUs or the network; pods of an indexed job that
don't run together; lines of $PBS_NODEFILE counted as hosts, where each rank has one; the last host of a list as the
meeting point, while rank 0 is on the first; tasks of srun that are not the devices of Lightning's trainer (its options,
its configuration or its program); services of compose that look for each other at localhost; pods that name themselves
as the meeting point; the same NCCL_HOSTID on all hosts; `^` in front of all interfaces that the file's own comments
name; variables that count processes given as a number of hosts, and the other way round; branches on a host's name, or
lines for single hosts, that differ in what all must share; timeouts of process groups in another unit than they are
read in; keys of --rdzv-conf that the rendezvous ignores; interfaces that Open MPI is told both to use and to leave out;
lists of GPUs that count within another list; a traffic class that the file itself calls a DSCP; a number whose unit the
file's own comment gives otherwise; sums for a port that leave the range of ports; NCCL_COMM_ID that each host takes for
itself; `$NAME` of this script in a text that a shell on another host puts in; what a task counts by itself as the
meeting point, its port or its id.

Why it happens: lists of settings are collected from several places, and a change of the job's size has to be made in
each of them.

How it decides: only settings that surely meet in one process are compared: those of one file, container or captured
environment, and not those inside branches. For a launch it takes the numbers that the file itself states: directives of
Slurm, PBS, LSF, SGE and Flux, options of srun, mpirun, jsrun, torchrun, accelerate and deepspeed, hostfiles that the
script writes, `--gpus` of docker, limits and replicas of Kubernetes, compose, SkyPilot, dstack, Nomad and HTCondor,
CUDA_VISIBLE_DEVICES, Trainer(…), mp.spawn(…), calls of Python that ask a scheduler or a cloud for a job or describe a
container, and arguments of the training program (`--trainer.num_nodes`, `--backend`). A pod that is not on its host's
network, that no annotation attaches to another and that asks for nothing but CPUs, memory and GPUs has eth0 and lo. A
number that only a run would tell is not judged. A text in single quotes, behind backslashes or in a quoted
here-document is read by the hosts that ssh, pdsh, srun and their like go to; `$(hostname)` that this shell reads is one
text for all of them.

Example: `TORCH_NCCL_BLOCKING_WAIT=1` with `TORCH_NCCL_DUMP_ON_TIMEOUT=1`: there will be no dump.

Fix: said with each finding.

Limits: what a launcher adds is not known; a wrapper around the file may start it more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import renames
from whichrank.facts.variables.values import is_true, number
from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV111"
CAUSE = "wrong-environment"

Scope = dict[str, Assignment]
_UCX_RDMA = re.compile(r"(?:rc|ud|dc|ib)(?:_\w{1,10})?(?::aux)?$")


def judge(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    for scope in settings.scopes():
        found += _evidence_lost(scope, settings)
    for sure in _together(settings):
        found += [*_two_names(sure), *_transports(sure), *_limits(sure), *_logs(sure)]
    for file in settings.files:
        for clash in file.clashes:
            holder = Assignment(clash.name, None, clash.ref, file.label, "export")
            found.append(
                flagged(CODE, holder, clash.severity, f"{clash.name}: {clash.why}.", clash.fix, also=clash.also)
            )
    return found


def _together(settings: Settings) -> Iterator[Scope]:
    """Settings that surely meet: those of a scope outside of alternatives, and those of each alternative."""
    found: dict[tuple[str, str], dict[str, Assignment]] = {}
    for a in settings.assignments():
        together = found.setdefault((a.scope, a.way), {})
        if a.value is not None and (a.sure or a.way):
            together[a.name] = a
        else:
            together.pop(a.name, None)
    yield from found.values()


def _first(scope: Scope, *names: str) -> Assignment | None:
    return next((scope[name] for name in names if name in scope), None)


def _evidence_lost(scope: Scope, settings: Settings) -> Iterator[Finding]:
    wait = _first(scope, "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    dump = _first(scope, "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
    ring = _first(scope, "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    handling = _first(scope, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    if wait and is_true(wait.value):
        wanted = next((each for each in (dump, ring) if each is not None and each.meets(wait)), None)
        vain = f" {wanted.name} has no effect." if wanted else ""
        message = (
            f"{wait.name}={wait.value} removes the watchdog, and with it the flight-recorder dump, the pipe "
            f"and the end of hung jobs; collectives become synchronous.{vain}"
        )
        also = (wanted.ref,) if wanted else ()
        yield flagged(
            CODE,
            wait,
            "warning",
            message,
            f"Remove {wait.name}: hangs end after the timeout anyway.",
            also=also,
        )
    if handling and handling.value == "0":
        message = f"{handling.name}=0: a rank that times out is never ended, and the job hangs for good."
        yield flagged(CODE, handling, "warning", message, f"Remove {handling.name}.")
    if dump and is_true(dump.value) and ring and number(ring.value) == 0 and dump.meets(ring):
        message = f"{dump.name} asks for a dump, and {ring.name}=0 turns the recorder off."
        yield flagged(CODE, ring, "warning", message, f"Write {ring.name}=2000.", also=(dump.ref,))
    yield from _by_release(scope, settings, dump, ring)


def _by_release(
    scope: Scope, settings: Settings, dump: Assignment | None, ring: Assignment | None
) -> Iterator[Finding]:
    some = next(iter(scope.values()))
    torch = settings.versions(some)[0][:2]
    if dump and is_true(dump.value) and not ring and torch and (2, 2) <= torch < (2, 11):
        message = f"{dump.name}=1 has nothing to write: before torch 2.11 the recorder is off unless given a size."
        name = "TORCH_FR_BUFFER_SIZE" if torch >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
        yield flagged(CODE, dump, "warning", message, f"Add {name}=2000.")
    pipe = scope.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    if pipe and (2, 8) <= torch < (2, 11) and "TORCH_NCCL_TRACE_BUFFER_SIZE" not in scope:
        message = f"{pipe.name}: torch 2.8 to 2.10 open the pipe only if TORCH_NCCL_TRACE_BUFFER_SIZE is set too."
        yield flagged(CODE, pipe, "warning", message, "Set the old name as well, and accept its warning.")
    debug = scope.get("TORCH_DISTRIBUTED_DEBUG")
    if debug and (debug.value or "").upper() == "DETAIL" and torch == (2, 13):
        message = "TORCH_DISTRIBUTED_DEBUG=DETAIL crashes DDP on Gloo in torch 2.13, in a healthy program too."
        yield flagged(CODE, debug, "warning", message, "Use INFO.")


def _two_names(sure: Scope) -> Iterator[Finding]:
    for rename in renames().values():
        old, new = sure.get(rename.old), sure.get(rename.new)
        if old and new and rename.still_read and old.value != new.value:
            message = f"{old.name}={old.value} and {new.name}={new.value} are one setting; {new.name} wins."
            yield flagged(CODE, old, "warning", message, f"Keep {new.name} only.", also=(new.ref,))


def _transports(sure: Scope) -> Iterator[Finding]:
    off = sure.get("NCCL_IB_DISABLE")
    if off and number(off.value) == 1:
        net = sure.get("NCCL_NET")
        wanted = net if net and (net.value or "").upper() == "IB" else sure.get("NCCL_IB_HCA")
        if wanted:
            message = f"NCCL_IB_DISABLE=1 switches off what {wanted.name}={wanted.value} asks for."
            yield flagged(CODE, off, "warning", message, "Keep one of the two.", also=(wanted.ref,))
    p2p, level = sure.get("NCCL_P2P_DISABLE"), sure.get("NCCL_P2P_LEVEL")
    if p2p and level and number(p2p.value) == 1:
        message = f"NCCL_P2P_DISABLE=1 switches off what NCCL_P2P_LEVEL={level.value} asks for."
        yield flagged(CODE, p2p, "warning", message, "Keep one of the two.", also=(level.ref,))
    algorithm, nvls = sure.get("NCCL_ALGO"), sure.get("NCCL_NVLS_ENABLE")
    if (
        algorithm
        and nvls
        and number(nvls.value) == 0
        and re.search(r"(?<![\^\w])nvls", algorithm.value or "", re.IGNORECASE)
    ):
        message = f"NCCL_NVLS_ENABLE=0 switches off what NCCL_ALGO={algorithm.value} asks for."
        yield flagged(CODE, algorithm, "warning", message, "Keep one of the two.", also=(nvls.ref,))
    cumem, nvls = sure.get("NCCL_CUMEM_ENABLE"), sure.get("NCCL_NVLS_ENABLE")
    if cumem and nvls and number(cumem.value) == 0 and (number(nvls.value) or 0) > 0:
        message = "NCCL_CUMEM_ENABLE=0 switches NVLS off, and NCCL_NVLS_ENABLE asks for it."
        yield flagged(CODE, cumem, "warning", message, "Keep one of the two.", also=(nvls.ref,))
    yield from _asked_for(sure)
    yield from _ucx(sure)
    yield from _open_mpi(sure)
    yield from _visible(sure)


# A switch, the number that turns it off, and what asks for the same thing to be used (numbers above 0, or a text).
# From NVIDIA/nccl: src/mnnvl.cc, src/graph/search.cc (pxnLevel), src/init.cc (initGdrCopy).
_SWITCHES = (
    (
        "NCCL_CUMEM_ENABLE",
        0,
        "NCCL_MNNVL_ENABLE",
        r"[1-9]\d*",
        "NVLink between hosts needs memory of the cuMem allocator",
    ),
    ("NCCL_COLLNET_ENABLE", 0, "NCCL_ALGO", r"(?i)(?:.{0,80}[,;:])?collnet\w*.{0,80}", ""),
    ("NCCL_PXN_DISABLE", 1, "NCCL_P2P_PXN_LEVEL", r"[12]", ""),
    ("NCCL_RAS_ENABLE", 0, "NCCL_RAS_ADDR", r".+", ""),
    ("NCCL_GDRCOPY_ENABLE", 0, "NCCL_GDRCOPY_SYNC_ENABLE", r"[1-9]\d*", ""),
    ("NCCL_GDRCOPY_ENABLE", 0, "NCCL_GDRCOPY_FLUSH_ENABLE", r"[1-9]\d*", ""),
    ("NCCL_GDRCOPY_ENABLE", 0, "NCCL_GDRCOPY_FIFO_ENABLE", r"[1-9]\d*", ""),
)


def _asked_for(sure: Scope) -> Iterator[Finding]:
    """What one setting switches off and another one asks for."""
    for name, off, wanted, pattern, because in _SWITCHES:
        switch, asks = sure.get(name), sure.get(wanted)
        if switch and asks and number(switch.value) == off and re.fullmatch(pattern, (asks.value or "").strip()):
            message = f"{name}={switch.value} switches off what {wanted}={asks.value} asks for"
            message += f": {because}." if because else "."
            yield flagged(CODE, switch, "warning", message, "Keep one of the two.", also=(asks.ref,))


def _open_mpi(sure: Scope) -> Iterator[Finding]:
    """Interfaces to use and interfaces to leave out, which exclude each other."""
    for name, listed in sure.items():
        other = sure.get(name.replace("_if_include", "_if_exclude"))
        if name.startswith("OMPI_MCA_") and name.endswith("_if_include") and other is not None and other.value:
            message = f"{name} and {other.name} exclude each other: Open MPI stops with an error."
            yield flagged(CODE, other, "warning", message, "Keep one of the two.", also=(listed.ref,))


_LIST = re.compile(r"\d{1,4}(?:,\d{1,4})*,?")


def _numbers(assignment: Assignment | None) -> list[int]:
    text = re.sub(r"\s", "", assignment.value or "") if assignment is not None else ""
    return [int(part) for part in text.strip(",").split(",")] if _LIST.fullmatch(text) else []


def _visible(sure: Scope) -> Iterator[Finding]:
    """Lists of GPUs that count within what another list leaves, and processes without a GPU."""
    outer, inner = sure.get("ROCR_VISIBLE_DEVICES"), _first(sure, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    left, asked = len(_numbers(outer)), _numbers(inner)
    if outer and inner and left and asked and max(asked) >= left:
        message = (
            f"{inner.name}={inner.value} counts within the {left} GPUs that ROCR_VISIBLE_DEVICES={outer.value} leaves, "
            f"which are 0 to {left - 1}."
        )
        yield flagged(CODE, inner, "warning", message, "Keep one of the two.", also=(outer.ref,))
    visible, processes = sure.get("CUDA_VISIBLE_DEVICES"), sure.get("PET_NPROC_PER_NODE")
    listed, wanted = _numbers(visible), number(processes.value) if processes else None
    if visible and processes and listed and wanted is not None and wanted > len(listed):
        message = (
            f"PET_NPROC_PER_NODE={processes.value} starts more processes than CUDA_VISIBLE_DEVICES={visible.value} "
            f"leaves GPUs ({len(listed)})."
        )
        yield flagged(CODE, visible, "warning", message, f"Start {len(listed)} processes.", also=(processes.ref,))


def _ucx(sure: Scope) -> Iterator[Finding]:
    """Transports of UCX and devices that none of them uses: `rc` with an interface, `tcp` with an RDMA port."""
    transports, devices = sure.get("UCX_TLS"), sure.get("UCX_NET_DEVICES")
    if transports is None or devices is None or not transports.value or not devices.value:
        return
    words = {word.strip() for word in transports.value.split(",")}
    if words & {"all", ""} or transports.value.startswith("^") or devices.value.startswith(("^", "all")):
        return
    rdma, tcp = any(_UCX_RDMA.match(word) for word in words), "tcp" in words
    ports = [re.search(r":\d{1,3}$", device.strip()) is not None for device in devices.value.split(",")]
    if (rdma and not tcp and not any(ports)) or (tcp and not rdma and all(ports)):
        message = f"UCX_TLS={transports.value} has no transport for UCX_NET_DEVICES={devices.value}."
        fix = "Name RDMA ports (mlx5_0:1) for rc, ud and dc, interfaces (eth0) for tcp."
        yield flagged(CODE, devices, "warning", message, fix, also=(transports.ref,))


def _limits(sure: Scope) -> Iterator[Finding]:
    for low_name, high_name in (
        ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
        ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"),
    ):
        low, high = sure.get(low_name), sure.get(high_name)
        if low and high and (number(low.value) or 0) > (number(high.value) or 0) > 0:
            message = f"{low_name}={low.value} is above {high_name}={high.value}."
            yield flagged(CODE, low, "warning", message, "Lower the first or raise the second.", also=(high.ref,))
    threads, sockets = sure.get("NCCL_SOCKET_NTHREADS"), sure.get("NCCL_NSOCKS_PERTHREAD")
    if threads and sockets and (number(threads.value) or 0) * (number(sockets.value) or 0) > 64:
        message = "NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD is above 64, where NCCL caps it."
        yield flagged(CODE, threads, "warning", message, "Keep the product at 64 or below.", also=(sockets.ref,))


def _logs(sure: Scope) -> Iterator[Finding]:
    level = sure.get("NCCL_DEBUG")
    if level is None:
        return
    quiet = (level.value or "").upper()
    file, subsystems = sure.get("NCCL_DEBUG_FILE"), sure.get("NCCL_DEBUG_SUBSYS")
    if file and quiet == "VERSION":
        message = "NCCL_DEBUG_FILE is used from NCCL_DEBUG=WARN on; with VERSION nothing is written to it."
        yield flagged(CODE, file, "warning", message, "Raise NCCL_DEBUG to WARN or INFO.", also=(level.ref,))
    if subsystems and quiet in {"VERSION", "WARN"}:
        message = f"NCCL_DEBUG_SUBSYS chooses among INFO lines, and NCCL_DEBUG={level.value} prints none."
        yield flagged(CODE, subsystems, "info", message, "Raise NCCL_DEBUG to INFO, or drop it.", also=(level.ref,))
