"""The one part of the build that pyproject.toml can't say: the optional decoders in C.

Without a compiler or Python's headers they are left out, and the decoders in Python do their work.
"""

from setuptools import Extension, setup

DECODERS = (
    "whichrank.evidence.pickle._native",
    "whichrank.evidence.readers.kineto._scan",
    "whichrank.evidence.text._looks",
)

setup(
    ext_modules=[
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.c"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        )
        for name in DECODERS
    ],
    # One wheel for Python 3.10 and everything later.
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
