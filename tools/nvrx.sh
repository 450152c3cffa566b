#!/bin/sh
# The newest wheel of nvidia-resiliency-ext, unpacked beside the environment: tools/nvrx.sh .venv
# pip would install it on glibc 2.39 and Python 3.12 only; the analysis of flight-recorder dumps in it is plain Python.
set -eu
venv=$1
rm -rf "$venv/nvrx"
mkdir -p "$venv/nvrx"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
"$venv/bin/python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
    --python-version 3.12 --platform "manylinux_2_39_$(uname -m)" --dest "$download" nvidia-resiliency-ext
"$venv/bin/python" -m zipfile -e "$download"/*.whl "$venv/nvrx"
