"""Two runs by the conditions they had: versions, settings, limits, topology, code, timing and verdicts.

How suspicious a difference is follows from what is known of it: a setting that the verdict names, a rule of `env lint`
that only the second run breaks, a limit that became smaller. What follows from the failure itself comes last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from whichrank.evidence.collectors.environment import ALLOWED
from whichrank.facts.variables.environment import catalogue, in_family, version
from whichrank.flows.compare.run_profile import Profile, arguments, as_dict, profile
from whichrank.model.difference import Difference

NAMED = 0.97
"""The verdict on B names it."""
BROKEN = 0.93
"""`env lint` finds something wrong with it, in B only."""
_QUIET = ("NCCL_DEBUG", "TORCH_CPP_LOG_LEVEL", "TORCH_SHOW_CPP_STACKTRACES", "TORCH_FR_", "NCCL_SET_THREAD_NAME",
          "TORCH_NCCL_DUMP", "TORCH_NCCL_TRACE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "TORCH_LOGS")  # fmt: skip
"""Settings that only change what is printed or recorded."""
_STACK = ("torch", "nvidia-nccl", "python", "cuda", "nvidia-cud", "nvidia-cublas", "triton", "flash-attn", "deepspeed",
          "transformer-engine", "accelerate", "lightning", "megatron")  # fmt: skip
"""Packages on which communication and kernels depend."""
_TOOLS = ("tqdm", "rich", "pip", "setuptools", "wheel", "pytest", "ruff", "mypy", "black", "ipython", "jupyter",
          "pygments", "certifi", "idna", "tensorboard", "wandb", "mlflow", "colorama",
          "packaging", "typing-extensions")  # fmt: skip
"""Packages that training hardly depends on."""
RATE, MEMORY = 1.5, 1.5
"""Changes of speed and memory below these factors are usual between two runs."""


def holds(path: Path) -> bool:
    """Whether there is a run below this path."""
    return profile(path).known


def compare(a: Path, b: Path) -> tuple[list[Difference], list[str]]:
    """The differences between two runs, and what was looked at."""
    one, other = profile(a), profile(b)
    found = [*differences(one, other)]
    looked = {
        "settings": one.settings and other.settings, "versions": one.packages and other.packages,
        "code": one.files and other.files, "limits": one.limits and other.limits,
        "network": one.interfaces and other.interfaces, "topology": one.world and other.world,
        "timing": one.history and other.history, "verdicts": one.verdict or other.verdict,
    }  # fmt: skip
    lacking = [name for name, both in looked.items() if not both and name != "verdicts"]
    words = [f"{', '.join(name for name, both in looked.items() if both) or 'nothing'} of two runs"]
    return found, words + ([f"not in both: {', '.join(lacking)}"] if lacking else [])


def differences(a: Profile, b: Profile) -> Iterator[Difference]:
    """All of them, in no order."""
    named = _named(b)
    for part in (_settings, _versions, _limits, _machines, _network, _gpus, _topology, _command, _code, _timing):
        for found in part(a, b):
            mentioned = named(found.what)
            if mentioned:
                yield Difference(found.what, found.a, found.b, NAMED, f"{mentioned}; {found.why}")
            else:
                yield found
    yield from _verdicts(a, b)


def _named(b: Profile) -> Callable[[str], str]:
    """Whether the verdict on B, its proof or its fix names something."""
    verdict, findings = as_dict(b.verdict.get("verdict")), b.verdict.get("findings")
    same = (
        [f for f in findings if as_dict(f).get("cause") == verdict.get("cause")] if isinstance(findings, list) else []
    )
    text = json.dumps([verdict, same]) if verdict.get("category") not in ("healthy", "unknown") else ""

    def mentioned(what: str) -> str:
        name = what.rsplit(maxsplit=1)[-1].rsplit("/", 1)[-1]
        if len(name) > 4 and name in text:
            return f"the verdict on B ({verdict.get('cause')}) names it"
        return ""

    return mentioned


# -- settings


def _settings(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.settings or not b.settings:
        return
    broken = _lint(b).keys() - _lint(a).keys()
    reasons = _lint(b)
    for name in sorted({*a.settings, *b.settings} - {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}):
        mine, theirs = _told(a.settings.get(name, {}), a), _told(b.settings.get(name, {}), b)
        if mine == theirs or not (ALLOWED.match(name) or (a.whole and b.whole)):
            continue
        if name in broken:
            yield Difference(f"setting {name}", mine, theirs, BROKEN, f"env lint of B: {reasons[name]}")
            continue
        apart = len(set(b.settings.get(name, {}).values())) > 1 or 0 < len(b.settings.get(name, {})) < len(_ranks(b))
        known = catalogue().get(name)
        if apart and not _differs(a.settings.get(name, {}), a):
            why = "in B the ranks don't agree on it" + (", and they must" if known and known.must_match else "")
            yield Difference(f"setting {name}", mine, theirs, 0.92 if known and known.must_match else 0.86, why)
        else:
            yield Difference(f"setting {name}", mine, theirs, *_weight(name))


def _weight(name: str) -> tuple[float, str]:
    """How suspicious a changed setting is by its name alone."""
    known = catalogue().get(name)
    if name.startswith(_QUIET):
        return 0.12, "it changes only what is printed or recorded"
    if known is not None:
        return 0.82, f"{known.library} reads it: {known.meaning[:120]}"
    if in_family(name):
        return 0.74, "it looks like a setting of NCCL or torch, but no known version reads it"
    if name.startswith(("CUDA_", "LD_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_", "PYTORCH_", "HIP_", "ROCR_")):
        return 0.72, "libraries under the job read it"
    if name.startswith(("SLURM_", "LANG", "LC_")):
        return 0.25, "set by the scheduler or the shell"
    return 0.55, "the job may read it"


def _lint(run: Profile) -> dict[str, str]:
    """Variable -> what `env lint` says of it, for what the first rank was started with."""
    from whichrank.flows.env.lint import lint, present_environment

    values = {name: by_rank[min(by_rank)] for name, by_rank in run.settings.items() if by_rank}
    files = [file for file in present_environment(values, "/nonexistent") if file.kind == "environment"]
    torch, nccl = run.packages.get("torch"), next((v for k, v in run.packages.items() if "nccl" in k), None)
    found: dict[str, str] = {}
    for finding in lint(files, torch=torch, nccl=nccl).findings:
        name = finding.evidence[0].quote.partition("=")[0]
        if finding.severity != "info" and name in values:
            found.setdefault(name, finding.message[:200])
    return found


def _ranks(run: Profile) -> set[int]:
    return {rank for by_rank in run.settings.values() for rank in by_rank}


def _differs(by_rank: Mapping[int, str], run: Profile) -> bool:
    return len(set(by_rank.values())) > 1 or 0 < len(by_rank) < len(_ranks(run))


def _told(by_rank: Mapping[int, str], run: Profile) -> str:
    """`eth0`, or `eth0 (rank 3: eth1)`; "not set" where it is not."""
    if not by_rank:
        return "not set"
    values = {rank: by_rank.get(rank, "not set") for rank in _ranks(run) | set(by_rank)}
    common, count = Counter(values.values()).most_common(1)[0]
    rest = [f"rank {rank}: {value[:60]}" for rank, value in sorted(values.items()) if value != common]
    return common[:200] + (f" ({'; '.join(rest[:4])}{' …' if len(rest) > 4 else ''})" if count < len(values) else "")


# -- software and machines


def _versions(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.packages or not b.packages:
        return
    for name in sorted({*a.packages, *b.packages}):
        mine, theirs = a.packages.get(name, "not there"), b.packages.get(name, "not there")
        if mine != theirs:
            older = version(theirs) < version(mine) if version(mine) and version(theirs) else False
            stack = name.startswith(_STACK)
            why = "communication or kernels depend on it" if stack else "another version of a package"
            weight = (0.84 if stack else 0.15 if name.startswith(_TOOLS) else 0.6) + (0.02 if older else 0)
            yield Difference(
                f"version of {name}", mine, theirs, weight, why + (", and B has the older one" if older else "")
            )


def _limits(a: Profile, b: Profile) -> Iterator[Difference]:
    for name in sorted({*a.limits} & {*b.limits}):
        mine, theirs = _few(a.limits[name].values()), _few(b.limits[name].values())
        if mine != theirs:
            smaller = _size(theirs) < _size(mine)
            yield Difference(
                f"limit on {name}", mine, theirs, 0.85 if smaller else 0.3,
                "B may use less than A could" if smaller else "B may use more",
            )  # fmt: skip
    cpus_a, cpus_b = _few(a.cpus.values()), _few(b.cpus.values())
    if a.cpus and b.cpus and cpus_a != cpus_b:
        fewer = _size(cpus_b) < _size(cpus_a)
        yield Difference("CPUs of a rank", cpus_a, cpus_b, 0.84 if fewer else 0.3, "by its affinity")
    nice_a, nice_b = _few(a.nice.values()), _few(b.nice.values())
    if a.nice and b.nice and nice_a != nice_b:
        yield Difference("priority (nice)", nice_a, nice_b, 0.6, "a lower priority lets others run first")


_FACTS = {
    "kernel": ("kernel", 0.62, 0.62),
    "driver": ("version of the NVIDIA driver", 0.84, 0.84),
    "memory_kb": ("memory of the host, kB", 0.66, 0.25),
    "cgroup_memory": ("memory limit of the container", 0.86, 0.3),
    "shm_kb": ("size of /dev/shm, kB", 0.86, 0.3),
}
"""Fact -> its name, and how suspicious it is where B has less and where B has more."""


def _machines(a: Profile, b: Profile) -> Iterator[Difference]:
    for fact, (name, less, more) in _FACTS.items():
        mine, theirs = _few(a.host.get(fact, {}).values()), _few(b.host.get(fact, {}).values())
        if fact == "cgroup_memory" and a.host and b.host:
            mine, theirs = mine or "none", theirs or "none"
        if not mine or not theirs or mine == theirs:
            continue
        if fact == "memory_kb" and abs(_size(mine) - _size(theirs)) < 0.02 * _size(mine):
            continue
        weight = less if _size(theirs) < _size(mine) else more
        yield Difference(name, mine, theirs, weight, "the machines differ" if fact != "kernel" else "another kernel")


def _network(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.interfaces or not b.interfaces:
        return
    for name in sorted({*a.interfaces, *b.interfaces}):
        mine, theirs = a.interfaces.get(name, "not there"), b.interfaces.get(name, "not there")
        if mine == theirs or name.startswith(("veth", "cali", "cni", "docker", "br-")):
            continue
        gone = theirs == "not there" or ("down" in theirs and "down" not in mine)
        if mine == "not there" and "down" in theirs:
            continue
        why = "B has lost it" if gone else "ranks may communicate over it"
        yield Difference(f"interface {name}", mine, theirs, 0.9 if gone else 0.83 if mine != "not there" else 0.5, why)


def _gpus(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.gpus or not b.gpus:
        return
    if len(a.gpus) != len(b.gpus):
        yield Difference("number of GPUs", str(len(a.gpus)), str(len(b.gpus)), 0.88, "B has others at hand")
    kept = ("name", "driver_version", "memory.total", "enforced.power.limit", "clocks.max.sm", "pcie.link.gen.max",
            "pcie.link.width.current", "pcie.link.width.max")  # fmt: skip
    for column in sorted({key for row in (*a.gpus, *b.gpus) for key in row if key.split(" ")[0] in kept}):
        mine, theirs = (_few(row.get(column, "") for row in run.gpus) for run in (a, b))
        if mine != theirs:
            yield Difference(f"GPU {column}", mine, theirs, 0.85, "the GPUs are not the same")


# -- the job


def _topology(a: Profile, b: Profile) -> Iterator[Difference]:
    if a.world and b.world and a.world != b.world:
        yield Difference("number of ranks", str(a.world), str(b.world), 0.88, "other groups, other sizes of messages")
    mine, theirs = _few(a.hosts), _few(b.hosts)
    if a.hosts and b.hosts and mine != theirs:
        new = ", ".join(sorted(b.hosts - a.hosts)[:4])
        yield Difference("hosts", mine, theirs, 0.7 if new else 0.5, f"new in B: {new}" if new else "fewer hosts")


def _command(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.command or not b.command:
        return
    mine, theirs = arguments(a.command), arguments(b.command)
    if mine == theirs:
        return
    import difflib

    for kind, i, j, k, m in difflib.SequenceMatcher(a=mine, b=theirs, autojunk=False).get_opcodes():
        if kind != "equal":
            what = _argument(mine[:i], mine[i:j], theirs[k:m])
            was, now = " ".join(mine[i:j]) or "not given", " ".join(theirs[k:m]) or "not given"
            ranks = any(word in f"{what} {was} {now}" for word in ("nproc", "nnodes", "num_processes"))
            why = "how many ranks are started" if ranks else "the command was called in another way"
            yield Difference(what, was[:200], now[:200], 0.7 if ranks else 0.8, why)


def _argument(before: list[str], was: list[str], now: list[str]) -> str:
    """What words that differ belong to: the option that they are the value of, or the script that gets them."""
    first = (was or now)[0]
    if first.startswith("-"):
        names = {word.partition("=")[0] for word in (*was, *now)}
        return f"argument {names.pop()}" if len(names) == 1 else "arguments"
    if before and before[-1].startswith("-") and "=" not in before[-1]:
        return f"argument {before[-1]}"
    script = next((word for word in reversed(before) if word.endswith((".py", ".sh"))), "")
    return f"arguments of {script}" if script else "arguments"


def _code(a: Profile, b: Profile) -> Iterator[Difference]:
    if not a.files or not b.files:
        return
    changed = [name for name in sorted({*a.files, *b.files}) if a.files.get(name) != b.files.get(name)]
    commits = (
        f"; git diff {a.commit[:12]} {b.commit[:12]} shows it" if a.commit != b.commit and a.commit and b.commit else ""
    )
    for name in changed[:20]:
        mine, theirs = (run.files.get(name, "not there").partition(" ") for run in (a, b))
        lines = (mine[2] or mine[0], theirs[2] or theirs[0])
        if lines[0] == lines[1]:
            lines = (f"{lines[0]}, sum {mine[0][:8]}", f"{lines[1]}, sum {theirs[0][:8]}")
        main, kind = name == b.script, "code" if name.endswith(".py") else "configuration"
        why = ("the script that was started" if main else "a file beside the script") + " has changed" + commits
        yield Difference(f"{kind} {name}", lines[0], lines[1], 0.81 if main else 0.76, why)
    if len(changed) > 20:
        yield Difference("code", "", f"{len(changed) - 20} more files", 0.5, "have changed")


# -- what follows


def _timing(a: Profile, b: Profile) -> Iterator[Difference]:
    slow, before = b.stragglers(), a.stragglers()
    for rank, row in slow.items():
        if rank not in before:
            place = str(row.get("place") or "an unknown place")
            yield Difference(f"rank {rank}", "kept up", "holds the others up", 0.68, f"mostly at {place}")
    rates_a, rates_b = a.rates(), b.rates()
    if rates_a and rates_b:
        mine, theirs = median(rates_a.values()), median(rates_b.values())
        if max(mine, theirs) > RATE * min(mine, theirs):
            way = "slower" if theirs < mine else "faster"
            yield Difference(
                "collectives per second", f"{mine:.2f}", f"{theirs:.2f}", 0.45, f"B is {way} from step to step"
            )
    heavy_a, heavy_b = a.memory(), b.memory()
    if heavy_a and heavy_b:
        mine, theirs = median(heavy_a.values()), max(heavy_b.values())
        if theirs > MEMORY * max(heavy_a.values()):
            rank = max(heavy_b, key=lambda each: heavy_b[each])
            why = f"rank {rank} has the most"
            yield Difference("memory of a rank", f"{mine / 2**20:.0f} MiB", f"{theirs / 2**20:.0f} MiB", 0.5, why)


def _verdicts(a: Profile, b: Profile) -> Iterator[Difference]:
    mine, theirs = _verdict(a), _verdict(b)
    if mine != theirs:
        yield Difference("verdict", mine, theirs, 0.05, "what came of it, not why")


def _verdict(run: Profile) -> str:
    verdict = as_dict(run.verdict.get("verdict"))
    if verdict:
        ranks = as_dict(verdict.get("culprits")).get("ranks")
        who = f", rank {', '.join(map(str, ranks[:8]))}" if isinstance(ranks, list) and ranks else ""
        return f"{verdict.get('category')}: {verdict.get('cause')}{who}"
    code = run.run.get("exit_code")
    return "none" if code is None else f"ended with code {code}"


def _few(values: object) -> str:
    every = sorted({str(value) for value in values}) if values else []  # type: ignore[attr-defined]
    return ", ".join(every[:6]) + (" …" if len(every) > 6 else "")


def _size(text: str) -> float:
    """The smallest number in a text; no limit is more than any."""
    found = [float(word) for word in text.replace(",", " ").split() if word.replace(".", "", 1).isdigit()]
    return min(found, default=float("inf"))
