"""How a value is read: what becomes of a text that the reader did not expect."""

from __future__ import annotations

import re
from typing import NamedTuple

from whichrank.facts.variables.environment import Variable, Version
from whichrank.facts.variables.units import not_meant

# In 2.30 these moved to NCCL's new parameter parser, which takes TRUE and T as well.
_WORDS_FROM_2_30 = frozenset({"NCCL_SET_THREAD_NAME", "NCCL_WARN_ENABLE_DEBUG_INFO"})
_TRUTHS = frozenset({"y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"})
# An empty text counts as unset elsewhere; these take it for a value (tried on 2.13.0).
_EMPTY_IS_WRONG = frozenset({"torch_bool", "torch_int", "python_int"})
_INT_MAX = 2**31 - 1
TRUE = frozenset({"y", "yes", "1", "t", "true"})


class Problem(NamedTuple):
    """What is wrong with a value, and whether it stops the job."""

    message: str
    fatal: bool = False


def problem(variable: Variable, value: str, nccl: Version = ()) -> Problem | None:
    """What happens to a value that is not read as it was meant; None where nothing is wrong."""
    check = _CHECKS.get(variable.parser)
    if check is None or (not value.strip() and variable.parser not in _EMPTY_IS_WRONG):
        return None
    if variable.name in _WORDS_FROM_2_30 and nccl >= (2, 30) and value.lower() in {"t", "true", "f", "false"}:
        return None
    if variable.name == "NCCL_ALGO" and nccl and nccl < (2, 14):
        return None if value.lower().strip("^") == "collnet" else _too_new(variable.name, value, nccl)
    return check(variable, value) or _too_new(variable.name, value, nccl)


# Variable, form of the value, the first NCCL that reads it, what it is: NCCL user guide, env.rst, and nccl.csv.
_FIRST_READ = (
    ("NCCL_CTA_POLICY", r"(?i)[A-Z].*", (2, 29), "names of policies"),
    ("NCCL_ALGO", r".*:.*", (2, 24), "lists for single functions"),
    ("NCCL_PROTO", r".*:.*", (2, 24), "lists for single functions"),
    ("NCCL_ALGO", r"(?i)(?:.*[,^:;])?pat(?:[,;].*)?", (2, 23), "PAT"),
    ("NCCL_ALGO", r"(?i).*nvlstree.*", (2, 18), "NVLSTree"),
    ("NCCL_ALGO", r"(?i)(?:.*[,^:;])?nvls(?:[,;].*)?", (2, 17), "NVLS"),
    ("NCCL_ALGO", r"(?i).*collnet(?:direct|chain).*", (2, 14), "CollNetDirect and CollNetChain"),
    ("NCCL_DEBUG", r"(?i)attn", (2, 32), "ATTN"),
)


def _too_new(name: str, value: str, nccl: Version) -> Problem | None:
    """A form of the value that the version at hand does not know yet."""
    for variable, form, first, what in _FIRST_READ if nccl else ():
        if name == variable and nccl[:2] < first and re.fullmatch(form, value[:400]):
            since, here = (".".join(map(str, each)) for each in (first, nccl))
            return Problem(f"NCCL reads {what} since {since}; {here} does not")
    return None


def is_true(value: str | None) -> bool:
    """As PyTorch reads a switch."""
    return (value or "").lower() in TRUE


def number(value: str | None) -> int | None:
    """As strtoll with base 0 reads it; None for no number at all."""
    match = re.match(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|\d+)", value or "")
    if not match:
        return None
    digits = match[2]
    if digits[:2] in {"0x", "0X"}:
        found = int(digits, 16)
    elif digits.startswith("0"):
        octal = re.match(r"[0-7]+", digits)
        found = int(octal.group()[:24], 8) if octal else 0
    else:
        found = int(digits[:24])
    return -found if match[1] == "-" else found


def _nccl_int(variable: Variable, value: str) -> Problem | None:
    read = number(value)
    if read is None:
        return Problem(f"NCCL reads '{value}' as the number 0{_effect(variable, value)}")
    if not re.fullmatch(r"\s*[-+]?(?:0[xX][0-9a-fA-F]+|\d+)\s*", value):
        return Problem(f"NCCL stops reading '{value}' at the first letter: it becomes {read}")
    if re.fullmatch(r"\s*0\d+\s*", value):
        return Problem(f"a leading 0 means octal: NCCL reads '{value}' as {read}")
    if variable.values[:1] == ("..",) and read >= 0:
        low, high = int(variable.values[1]), int(variable.values[2])
        if not low <= read <= high:
            return Problem(f"{read} is outside {low} to {high}")
    elif variable.values and variable.kind == "int" and read >= 0 and str(read) not in variable.values:
        return Problem(f"{read} is none of {', '.join(variable.values)}")
    return _other_unit(variable, read)


def _nccl_warps(variable: Variable, value: str) -> Problem | None:
    """A number of threads, which come in warps of 32."""
    found = _nccl_int(variable, value)
    read = number(value)
    if found is None and read is not None and read % 32:
        return Problem(f"{read} is not a multiple of 32 and is ignored with a warning")
    return found


def _nccl_power(variable: Variable, value: str) -> Problem | None:
    """A number of bytes that is a power of two."""
    read = number(value)
    if (found := _nccl_int(variable, value)) is None and read is not None and read > 0 and read & (read - 1):
        return Problem(f"{read} is not a power of two and is ignored with a warning")
    return found


def _nccl_index(variable: Variable, value: str) -> Problem | None:
    """A place in a table of the device; keys themselves are written in hex, and are larger than a table is long."""
    read = number(value)
    hexadecimal = re.fullmatch(r"\s*0[xX][0-9a-fA-F]{2,}\s*", value)
    if read is not None and (hexadecimal or read > int(variable.values[2])):
        return Problem(f"it is an index into the device's table of keys, not a key: '{value}' is place {read}")
    return _nccl_int(variable, value)


def _not_words(variable: Variable, value: str) -> Problem | None:
    if value.lower() not in variable.values:
        return None
    known = "network module (IB, Socket, or the name that a plugin has)" if variable.name == "NCCL_NET" else "provider"
    return Problem(f"'{value}' is not the name of a {known}")


def _options(variable: Variable, value: str) -> Problem | None:
    """`name:value,name:[a:1,b:2]`, as the CUDA allocator of PyTorch takes it."""
    for item in re.sub(r"\[[^\]]*\]", "[]", value).split(","):
        name, colon, given = (part.strip() for part in item.partition(":"))
        if not item.strip():
            continue
        if not colon or not re.fullmatch(r"\w+", name):
            return Problem(f"'{item.strip()}' is not NAME:VALUE; {_AT_FIRST_ALLOCATION}")
        if name not in variable.values:
            return Problem(f"'{name}' is not an option that is known; {_AT_FIRST_ALLOCATION}")
        if name in _OPTION_VALUES and not re.fullmatch(_OPTION_VALUES[name][0], given):
            return Problem(f"{name} takes {_OPTION_VALUES[name][1]}, not '{given}'; {_AT_FIRST_ALLOCATION}")
    return None


_AT_FIRST_ALLOCATION = "PyTorch raises at the first allocation"
# c10/core/AllocatorConfig.h, c10/cuda/CUDAAllocatorConfig.cpp: numbers are read by stoi, which leaves a unit out.
_OPTION_VALUES = {
    "expandable_segments": (r"True|False", "True or False"),
    "release_lock_on_cudamalloc": (r"True|False", "True or False"),
    "pinned_use_cuda_host_register": (r"True|False", "True or False"),
    "pinned_use_background_threads": (r"True|False", "True or False"),
    "max_split_size_mb": (r"0*(?:2[1-9]|[3-9]\d|[1-9]\d{2,})[A-Za-z]*", "a number above 20"),
    "garbage_collection_threshold": (r"0?\.\d*[1-9]\d*", "a number between 0 and 1"),
    "backend": (r"native|cudaMallocAsync", "native or cudaMallocAsync"),
}


def _range(variable: Variable, value: str) -> Problem | None:
    """A whole number between two ends."""
    low, high = variable.values[1:]
    if re.fullmatch(r"\s*\d{1,18}\s*", value) and int(low) <= int(value) <= int(high):
        return None
    return Problem(f"{variable.library} takes a number from {low} to {high} here, not '{value}'")


def _pattern(variable: Variable, value: str) -> Problem | None:
    if re.fullmatch(variable.values_text, value):
        return None
    return Problem(f"'{value}' has not the form that {variable.library} reads: {variable.allowed}")


def _ucx_devices(_variable: Variable, value: str) -> Problem | None:
    """UCX_NET_DEVICES: RDMA devices with their port, interfaces without."""
    for item in value.removeprefix("^").split(","):
        if re.fullmatch(r"\s*(?:mlx[45]|bnxt_re|irdma|rdmap|efa|hfi1|qedr|cxgb4|hns)_?\d+\s*", item):
            name = item.strip()
            return Problem(f"UCX names RDMA devices with their port, {name}:1; before 1.21 it does not find '{name}'")
    return None


def _ucx_transports(variable: Variable, value: str) -> Problem | None:
    words = (re.sub(r"^\\\\|:aux$", "", word.strip()) for word in value.removeprefix("^").split(","))
    return _unknown_words(variable, list(words))


def _devices(_variable: Variable, value: str) -> Problem | None:
    """CUDA_VISIBLE_DEVICES: the driver reads up to the first item that it does not understand."""
    if value.strip() in {"-1", "none", "NoDevFiles"}:
        return None
    item = r"\s*(?:\d+|GPU-[\w-]+|MIG-[\w/-]+)\s*"
    if re.fullmatch(rf"{item}(?:,{item})*,?", value):
        return None
    return Problem(f"'{value}' is not a list of devices such as 0,1,2: CUDA stops at what it can't read")


def _host_port(_variable: Variable, value: str) -> Problem | None:
    if re.fullmatch(r"\S+:\d{1,5}", value):
        return None
    return Problem(f"'{value}' is not an address with a port, such as 10.0.0.1:23456")


def _effect(variable: Variable, value: str) -> str:
    if value.lower() in TRUE | {"on", "enable", "enabled"} and variable.kind == "bool":
        return ", which is off, the opposite of what it says"
    return ""


def _torch_bool(variable: Variable, value: str) -> Problem | None:
    if value.lower() in _TRUTHS:
        return None
    return Problem(f"PyTorch takes 1/y/yes/t/true or 0/n/no/f/false here, not '{value}': {_stops(variable.name)}", True)


def _torch_int(variable: Variable, value: str) -> Problem | None:
    match = re.match(r"\s*([-+]?\d+)", value)
    if not match or len(match[1]) > 20 or abs(int(match[1])) > _INT_MAX:
        return Problem(f"PyTorch can't read '{value}' as a number: {_stops(variable.name)}", True)
    read = int(match[1])
    if match.group() != value.rstrip():
        return Problem(f"PyTorch stops reading '{value}' at the first letter: it becomes {read}")
    if variable.values[:1] == ("..",) and not int(variable.values[1]) <= read <= int(variable.values[2]):
        return Problem(f"{read} is outside {variable.values[1]} to {variable.values[2]}")
    return _other_unit(variable, read)


# The monitor's heartbeat is 480 or 600 s; whole minutes in milliseconds begin at days of seconds.
_LONG_S, _MINUTE_MS = 300_000, 60_000


def _other_unit(variable: Variable, read: int) -> Problem | None:
    """Seconds where milliseconds are read, and the other way round; mebibytes where bytes are."""
    if other := not_meant(variable, read):
        return Problem(other)
    if variable.name.endswith("_TIMEOUT_SEC") and read >= _LONG_S and read % _MINUTE_MS == 0:
        return Problem(f"the unit is seconds: these are {read // 3600} hours; {read} ms are {read // 1000}")
    return None


def _stops(name: str) -> str:
    """Tried on 2.13.0: the recorder's variables hang Gloo's start, the others raise."""
    if name.startswith("TORCH_FR_") or "TRACE_" in name:
        return "with Gloo init_process_group hangs forever without a word, with NCCL it fails"
    return "init_process_group fails"


def _python_int(variable: Variable, value: str) -> Problem | None:
    if re.fullmatch(r"\s*[-+]?\d+\s*", value):
        return _other_unit(variable, int(value[:12]))
    return Problem(f"'{value}' is no whole number: it ends the process with a ValueError", fatal=True)


# Longer than a day, in whole minutes of seconds: 1800, 3600, 7200.
_DAY_MINUTES = 24 * 60


def _minutes(variable: Variable, value: str) -> Problem | None:
    found = _python_int(variable, value)
    read = int(value[:12]) if found is None else 0
    if read > _DAY_MINUTES and read % 60 == 0:
        return Problem(f"the unit is minutes: these are {read // 60} hours; {read} s are {read // 60}")
    return found


def _port(_variable: Variable, value: str) -> Problem | None:
    if re.fullmatch(r"\d{1,5}", value.strip()) and int(value) <= 65535:
        return None
    return Problem(f"'{value}' is not a port: those are numbers up to 65535", fatal=True)


def _flag01(_variable: Variable, value: str) -> Problem | None:
    return None if value in {"0", "1"} else Problem(f"only 0 and 1 are read; '{value}' is ignored with a warning")


def _enum(variable: Variable, value: str, *, exact: bool, fatal: bool = False) -> Problem | None:
    if value in variable.values or (not exact and value.upper() in {v.upper() for v in variable.values}):
        return None
    words = ", ".join(variable.values)
    if exact and value.upper() in {v.upper() for v in variable.values}:
        return Problem(f"the spelling matters, capitals included: '{value}' is silently ignored (known: {words})")
    fate = "ends the process while torch.distributed is imported" if fatal else "is ignored"
    return Problem(f"'{value}' is none of {words} and {fate}", fatal=fatal)


def _level(variable: Variable, value: str) -> Problem | None:
    return None if value[:1].isdigit() else _enum(variable, value, exact=True)


def _tokens(variable: Variable, value: str) -> Problem | None:
    return _unknown_words(variable, value.removeprefix("^").split(","))


def _choices(variable: Variable, value: str) -> Problem | None:
    if variable.name == "NCCL_ALGO" and "collnet" in re.split(r"[,;:^]", value.lower()):
        return Problem("since NCCL 2.14 it is CollNetDirect or CollNetChain; CollNet alone is not known")
    return _unknown_words(variable, [word.removeprefix("^") for word in re.split(r"[,;:]", value)])


def _unknown_words(variable: Variable, words: list[str]) -> Problem | None:
    known = {v.upper() for v in variable.values}
    wrong = [word for word in words if word.strip() and word.strip().upper() not in known]
    if not wrong:
        return None
    return Problem(f"'{wrong[0]}' is none of {', '.join(variable.values[:20])}")


_CHECKS = {
    "nccl_int": _nccl_int,
    "nccl_warps": _nccl_warps,
    "nccl_index": _nccl_index,
    "nccl_power": _nccl_power,
    "not_words": _not_words,
    "host_port": _host_port,
    "options": _options,
    "range": _range,
    "pattern": _pattern,
    "ucx_devices": _ucx_devices,
    "ucx_transports": _ucx_transports,
    "devices": _devices,
    "torch_bool": _torch_bool,
    "torch_int": _torch_int,
    "python_int": _python_int,
    "minutes": _minutes,
    "port": _port,
    "flag01": _flag01,
    "enum_exact": lambda variable, value: _enum(variable, value, exact=True),
    "enum_nocase": lambda variable, value: _enum(variable, value, exact=False),
    "enum_nocase_fatal": lambda variable, value: _enum(variable, value, exact=False, fatal=True),
    "level": _level,
    "tokens": _tokens,
    "choices": _choices,
}
