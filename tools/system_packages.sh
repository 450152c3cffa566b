#!/bin/sh
# Install the programs that some tests use for real, where this user may; without them those tests are skipped.
# Debian's names; what is there already is left alone.
set -eu

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

need ip iproute2
need nft nftables
need ping iputils-ping
need ethtool ethtool
need ib_write_bw perftest
need sshd openssh-server
need prometheus prometheus
need slurmctld slurmctld
need slurmd slurmd
need srun slurm-client
need munged munge
need etcd etcd-server
need gdb gdb
need iperf3 iperf3
need kubectl kubernetes-client
need faketime faketime
need tcpdump tcpdump
need chromium chromium
need chromedriver chromium-driver
need node nodejs

trace_processor() {
    [ ! -d .venv ] || ! command -v node >/dev/null 2>&1 || timeout 300 tools/trace_processor.sh .venv 2>/dev/null ||
        echo "Perfetto's trace_processor could not be had: tests that need it are skipped" >&2
}

if [ -z "$missing" ]; then
    trace_processor
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Not installed (tests that need them are skipped):$missing" >&2
    trace_processor
    exit 0
fi
echo "Installing$missing …"
export DEBIAN_FRONTEND=noninteractive
# Services are started by the tests themselves; a package must not start its own.
{ apt-get update -qq && apt-get install -qqy --no-install-recommends $missing; } >/dev/null 2>&1 ||
    echo "Some of these could not be installed; tests that need them are skipped:$missing" >&2
trace_processor
