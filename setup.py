"""The one part of the build that pyproject.toml can't say: the optional decoder in C.

Without a compiler or Python's headers it is left out, and the decoder in Python does its work.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "whichrank.evidence.pickle._native",
            ["src/whichrank/evidence/pickle/_native.c"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            extra_compile_args=["-O2"],
            py_limited_api=True,
            optional=True,
        )
    ],
    # One wheel for Python 3.10 and everything later.
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
