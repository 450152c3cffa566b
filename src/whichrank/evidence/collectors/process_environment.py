"""The environment of a live process: the one it started with, and the one it has now.

/proc/PID/environ is what the process was started with; what it put there later (os.environ, setenv) is found
through the C library's variable `environ` in its memory. Nothing is stopped or changed.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from whichrank.model.errors import UnreadableError

ENTRIES_LIMIT = 65_536
TOTAL_LIMIT = 8 * 1024 * 1024
PAGE = 4096
IMAGE_LIMIT = 256 * 1024 * 1024
SHT_DYNSYM = 11


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """`now` is None where the memory could not be read; `note` says why."""

    pid: int
    start: dict[str, str]
    now: dict[str, str] | None
    note: str = ""


def collect(pid: int, proc: Path = Path("/proc")) -> ProcessEnvironment:
    """Both environments of a process of the same user."""
    folder = proc / str(pid)
    try:
        start = _variables((folder / "environ").read_bytes().split(b"\0"))
    except OSError as error:
        raise UnreadableError(f"can't read the environment of process {pid}: {error.strerror}") from error
    try:
        return ProcessEnvironment(pid, start, _variables(_present(folder)))
    except OSError as error:
        note = f"its present environment is out of reach ({error.strerror}); the same user, or root, may read it"
        return ProcessEnvironment(pid, start, None, note)
    except (LookupError, ValueError, OverflowError, struct.error) as error:
        return ProcessEnvironment(pid, start, None, f"its present environment was not found ({error})")


def _variables(entries: list[bytes]) -> dict[str, str]:
    pairs = (entry.decode("utf-8", "backslashreplace").partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals}


def _present(folder: Path) -> list[bytes]:
    """The strings that the process's own `environ` points at."""
    pointer = _environ_address(folder)
    memory = os.open(folder / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        (array,) = struct.unpack("<Q", _exactly(memory, pointer, 8))
        entries: list[bytes] = []
        total = 0
        while len(entries) < ENTRIES_LIMIT and total < TOTAL_LIMIT:
            (address,) = struct.unpack("<Q", _exactly(memory, array + 8 * len(entries), 8))
            if not address:
                return entries
            entries.append(_string(memory, address))
            total += len(entries[-1])
    finally:
        os.close(memory)
    raise ValueError("it is larger than any environment")


def _exactly(memory: int, address: int, count: int) -> bytes:
    data = os.pread(memory, count, address)
    if len(data) != count:
        raise ValueError("its memory changed while it was read")
    return data


def _string(memory: int, address: int) -> bytes:
    found = b""
    while len(found) < 1024 * 1024:
        chunk = os.pread(memory, PAGE - address % PAGE, address)
        text, end, _ = chunk.partition(b"\0")
        found += text
        if end or not chunk:
            break
        address += len(chunk)
    return found


def _environ_address(folder: Path) -> int:
    """Where `environ` lives: in the executable if it has a copy of its own, else in the C library."""
    images: dict[str, int] = {}
    for line in (folder / "maps").read_text(encoding="utf-8", errors="backslashreplace").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/") and int(parts[2], 16) == 0:
            images.setdefault(parts[5], int(parts[0].partition("-")[0], 16))
    executable = str((folder / "exe").readlink())
    library = [path for path in images if "/libc.so" in path or "/libc-2." in path or "/ld-musl" in path]
    for path in (executable, *library):
        if path in images:
            # Through the process's own root, so that a container's files are found.
            symbol = _symbol(Path(f"{folder}/root{path}"))
            if symbol is not None:
                value, relocated = symbol
                return value + (images[path] if relocated else 0)
    raise LookupError("no C library that is understood")


def _symbol(path: Path) -> tuple[int, bool] | None:
    """The value of `environ` in an ELF file, and whether it is relative to where the file is loaded."""
    with path.open("rb") as stream:
        image = stream.read(IMAGE_LIMIT)
    if image[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return None
    kind = struct.unpack_from("<H", image, 16)[0]
    (sections,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections + index * size) for index in range(count)]
    for header in headers:
        if header[1] == SHT_DYNSYM:
            offset, length, link, entry = header[4], header[5], header[6], header[9]
            names = headers[link][4]
            for at in range(offset, offset + length, entry):
                name, _info, _other, section, value = struct.unpack_from("<IBBHQ", image, at)
                if section and _name(image, names + name) in {b"environ", b"__environ", b"_environ"}:
                    return value, kind == 3  # ET_DYN
    return None


def _name(image: bytes, at: int) -> bytes:
    return image[at : at + 10].partition(b"\0")[0]
