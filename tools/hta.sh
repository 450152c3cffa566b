#!/bin/sh
# HolisticTraceAnalysis in an environment of its own, with what the generator of traces needs: tools/hta.sh .venv/hta
set -eu
"${PYTHON:-python3}" -m venv "$1"
"$1/bin/python" -m pip --disable-pip-version-check install --quiet HolisticTraceAnalysis orjson isal
