#!/bin/sh
# Build wheel and sdist, install the wheel alone into a fresh environment, and run the demo from there. Then the same
# wheel by pipx, by uvx and as one file.
set -eu
python=$1 example=$2
"$python" -m pip install --quiet --disable-pip-version-check build shiv pipx uv
rm -rf dist
"$python" -m build --outdir dist .
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
wheel=$(ls dist/*.whl)
"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
cp -r "$example" "$fresh/example"
(cd "$fresh" && { "$fresh/venv/bin/whichrank" diagnose example --quiet || test $? -eq 1; })
echo "by pipx:"
PIPX_HOME="$fresh/pipx" PIPX_BIN_DIR="$fresh/bin" "$python" -m pipx run --spec "$wheel" whichrank --version
echo "by uvx:"
"$python" -m uv --quiet --cache-dir "$fresh/uv" tool run --from "$wheel" whichrank --version
echo "as one file:"
"$python" -m shiv --quiet --console-script whichrank --output-file "dist/whichrank-$(uname -m).pyz" "$wheel"
"$python" "dist/whichrank-$(uname -m).pyz" --version
