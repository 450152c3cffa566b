"""`dataclass`, whose methods are written when they are first needed.

The standard decorator compiles up to eight functions for every class, about a millisecond. A short command loads some
170 classes and makes instances of a third of them. Here a class gets its slots at once, and the standard decorator
writes `__init__` and the rest when an instance is made, compared or shown, or somebody asks for the fields. Where a
class is unusual (no slots, a base of another kind, `ClassVar`, a field that `__init__` does not take) the standard
decorator is used as it is.
"""

# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, RUF063 - type checkers see the standard decorator
from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import sys
    from threading import RLock

    _LOCK = RLock()  # dumps are read in threads
    _USUAL = {"frozen", "slots", "eq", "repr"}
    _READ = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    _UNUSUAL = ("ClassVar", "InitVar", "KW_ONLY")

    def dataclass(cls=None, /, **options):
        """As the standard one."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        return _deferred(cls, options) if _is_usual(cls, options) else dataclasses.dataclass(cls, **options)

    def _is_usual(cls, options):
        annotations = _annotations(cls)
        return (
            options.get("slots", False)
            and options.keys() <= _USUAL
            and "__slots__" not in cls.__dict__
            and "__hash__" not in cls.__dict__
            and all(base is object or isinstance(base.__dict__.get(_READ[0]), _WhenRead) for base in cls.__bases__)
            and all(isinstance(text, str) and not text.startswith(_UNUSUAL) for text in annotations.values())
            and all(getattr(cls.__dict__.get(name), "init", True) is not False for name in annotations)
        )

    class _WhenRead:
        """An attribute of the class that is there once the standard decorator has run."""

        def __init__(self, complete, name):
            self.complete, self.name = complete, name

        def __get__(self, _instance, _kind):
            return self.complete().__dict__[self.name]

    def _deferred(plain, options):
        """The class with its slots; `plain` keeps the defaults until the standard decorator needs them."""
        own, fields = plain.__dict__, _annotations(plain)
        namespace = {name: value for name, value in own.items() if name not in {*fields, "__dict__", "__weakref__"}}
        eq, frozen = options.get("eq", True), options.get("frozen", False)
        methods = {"__init__": True, "__repr__": options.get("repr", True), "__eq__": eq, "__hash__": eq and frozen}
        written = [name for name, wanted in methods.items() if wanted and name not in own]
        state = []

        def complete():
            """Let the standard decorator do its work, once; the class as it is afterwards."""
            with _LOCK:
                if not state:
                    done = dataclasses.dataclass(plain, **{**options, "slots": False})
                    for name in (*written, *_READ):
                        if name in done.__dict__:
                            setattr(made, name, done.__dict__[name])
                    state.append(done)
            return made

        namespace["__slots__"] = tuple(name for name in fields if not _inherited(plain, name))
        namespace.update({name: _first_call(complete, name) for name in written})
        namespace.update({name: _WhenRead(complete, name) for name in _READ})
        namespace = {**_FROZEN, **namespace} if frozen else namespace
        made = type(plain)(plain.__name__, plain.__bases__, namespace)
        made.__qualname__ = plain.__qualname__
        return made

    def _annotations(cls):
        """Those of the class itself."""
        if "__annotations__" in cls.__dict__ or sys.version_info < (3, 10):
            return cls.__dict__.get("__annotations__", {})
        return cls.__annotations__

    def _inherited(cls, name):
        return any(name in base.__dict__.get("__slots__", ()) for base in cls.__mro__[1:])

    def _first_call(complete, name):
        def method(self, *args, **more):
            return complete().__dict__[name](self, *args, **more)

        method.__name__ = name
        return method

    def _refuse(_self, name, *_):
        raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")

    def _state(self):
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _restore(self, state):
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    _FROZEN = {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _restore}
