#!/bin/sh
# Build wheel and sdist, install the wheel alone into a fresh environment, and run the demo from there.
set -eu
python=$1 example=$2
"$python" -m pip install --quiet --disable-pip-version-check build shiv
rm -rf dist
"$python" -m build --outdir dist .
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl
cp -r "$example" "$fresh/example"
cd "$fresh"
"$fresh/venv/bin/whichrank" diagnose example --quiet || test $? -eq 1
cd - > /dev/null
"$python" -m shiv --quiet --console-script whichrank --output-file "dist/whichrank-$(uname -m).pyz" dist/*.whl
"$python" "dist/whichrank-$(uname -m).pyz" --version
