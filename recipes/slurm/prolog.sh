#!/bin/sh
# Slurm prolog: a node that fails the quick checks is drained instead of failing the job.
# slurm.conf: Prolog=/etc/slurm/prolog.d/whichrank.sh  PrologFlags=Alloc
# A prolog that ends with another code than 0 drains the node and requeues the job.

WHICHRANK="${WHICHRANK:-whichrank}"
report=$(timeout 45 "$WHICHRANK" preflight --quick --quiet --format json 2>&1)
code=$?

# 1 is "findings": only errors keep the node out, warnings pass. 3 is "could not tell": no reason to drain.
[ "$code" -eq 1 ] || exit 0
case $report in
    *'"severity": "error"'*) ;;
    *) exit 0 ;;
esac
reason=$(printf '%s' "$report" | sed -n 's/.*"message": "\(.*\)",\{0,1\}$/\1/p' | head -n 1)
echo "whichrank preflight: $reason"
exit 1
