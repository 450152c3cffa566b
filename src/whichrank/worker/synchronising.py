"""Whether a thread is in a call that waits for its GPU: `loss.item()` has no frame of its own, its instruction tells.

Copied into the job beside `startup.py`: standard library only.
"""

from __future__ import annotations

import types

METHODS = frozenset({"item", "cpu", "tolist", "synchronize", "wait"})
_BETWEEN = frozenset({"PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP"})
"""Instructions that may stand between the name of a method and its call."""
_MOST = 4096
"""Functions of which the calls are kept."""
_KNOWN: dict[types.CodeType, frozenset[int]] = {}


def waits_for_gpu(frame: types.FrameType) -> bool:
    """Whether the instruction at which a frame is calls a method that waits for what was launched before."""
    code = frame.f_code
    if code not in _KNOWN:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[code] = _calls(code) if METHODS.intersection(code.co_names) else frozenset()
    return frame.f_lasti in _KNOWN[code]


def _calls(code: types.CodeType) -> frozenset[int]:
    """Offsets of calls of such methods without arguments: their name stands right before the call."""
    import dis  # large, and most functions have no such call

    found, named = set(), False
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name.startswith(("CALL", "PRECALL")):  # Python 3.11 makes some calls in the first of two instructions
            if named and instruction.arg == 0:
                found.add(instruction.offset)
            named = named and name.startswith("PRECALL")
        elif name not in _BETWEEN:
            named = name in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in METHODS
    return frozenset(found)
