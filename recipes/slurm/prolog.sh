#!/bin/sh
# Slurm prolog: a node that fails the quick checks is drained instead of failing the job.
# slurm.conf: Prolog=/etc/slurm/prolog.d/whichrank.sh  PrologFlags=Alloc
# When a prolog ends with another code than 0, Slurm drains the node and queues the job again, but holds it until
# somebody releases it. To let it start on another node at once: SchedulerParameters=nohold_on_prolog_fail

# slurmd starts a prolog without a PATH: give the whole path if whichrank is not in these folders.
PATH="${PATH:-/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin}"
export PATH
WHICHRANK="${WHICHRANK:-whichrank}"

# Exit code 1: an error. Anything else (0: fit, 3: could not tell, 124: too slow, 127: not installed) is no reason to drain.
report=$(timeout 45 "$WHICHRANK" preflight --quick --quiet --fail-on error 2>&1)
[ "$?" -eq 1 ] || exit 0
echo "whichrank preflight: $(printf '%s\n' "$report" | sed -n 's/^error: //p' | head -n 1)"
exit 1
