#!/bin/sh
# Make a virtual environment in the folder $1 with a Python of 3.10 or newer; PYTHON names another one.
set -eu
target=$1

# Half an environment would look like a whole one to the next call.
[ -e "$target" ] || trap '[ $? = 0 ] || rm -rf "$target"' EXIT

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

found=
for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
    if new_enough "$python"; then found=$python; break; fi
done
if [ -z "$found" ]; then
    echo "whichrank needs Python 3.10 or newer, and none was found." >&2
    echo "  Install one, or say where it is: make PYTHON=/path/to/python3" >&2
    exit 1
fi

can_venv() { "$found" -c 'import venv, ensurepip' >/dev/null 2>&1; }

# Debian and Ubuntu keep venv and ensurepip in a package of their own.
if ! can_venv && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    version=$("$found" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    { apt-get update -q && apt-get install -qy "$version-venv"; } >&2 || true
fi
if can_venv; then
    "$found" -m venv "$target"
elif "$found" -m virtualenv --version >/dev/null 2>&1; then
    "$found" -m virtualenv --quiet "$target"
elif "$found" -m pip --version >/dev/null 2>&1; then
    # An environment without pip of its own, filled by the pip that is there.
    "$found" -m venv --without-pip "$target"
    "$found" -m pip install --quiet --target "$("$target/bin/python" -c \
        'import sysconfig; print(sysconfig.get_path("purelib"))')" pip
else
    echo "$found can't make virtual environments: it has neither ensurepip nor pip." >&2
    echo "  On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
fi
"$target/bin/python" -m pip --version >/dev/null || {
    echo "The new environment $target has no pip. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
}
