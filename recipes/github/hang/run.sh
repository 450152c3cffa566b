#!/usr/bin/env bash
# The command in WHICHRANK_RUN, watched; what GitHub shows of it goes to its summary and outputs.
set -u
out=${WHICHRANK_OUT:-whichrank-results}
summary=${GITHUB_STEP_SUMMARY:-/dev/stdout}

whichrank run --policy end --no-history --out "$out" -- bash -c "$WHICHRANK_RUN"
code=$?

if [ -f "$out/verdict.json" ]; then
    whichrank diagnose "$out/bundle" --quiet --output "$out/report.html" >/dev/null
    cat "$out/report.md" >>"$summary"
    cause=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"]["cause"])' "$out/verdict.json")
    said=$(python3 -c 'import json, sys; print(" ".join(json.load(open(sys.argv[1]))["verdict"]["summary"].split()))' "$out/verdict.json")
    echo "verdict=$cause" >>"${GITHUB_OUTPUT:-/dev/null}"
    # A percent sign begins an escape in GitHub's commands.
    echo "::error title=whichrank: $cause::${said//%/%25}"
fi
# A job that was ended because it hung has not passed, whatever its launcher says.
[ -f "$out/verdict.json" ] && [ "$code" -eq 0 ] && code=1
exit "$code"
