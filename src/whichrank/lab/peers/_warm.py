"""A Python that has imported what a peer needs and forks for each question: importing torch takes seconds each time.

Runs as a script of its own: `python _warm.py MODULE…`. One line of JSON per question, one per answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import tempfile


def serve(modules: list[str]) -> None:
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        words = json.loads(line)
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if pid == 0:
                _answer(words, said.fileno())
            _, status = os.waitpid(pid, 0)
            said.seek(0)
            text = said.read(16 << 20).decode("utf-8", "replace")
        answers.write(json.dumps([os.waitstatus_to_exitcode(status), text]) + "\n")
        answers.flush()


def _answer(words: list[str], said: int) -> None:
    """In the child: the module as `python -m` would run it, its words into the file."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(bool(leave.code))
    except BaseException:  # noqa: BLE001 - as the interpreter would
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])
