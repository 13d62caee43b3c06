#!/usr/bin/env bash
# Runs the checks that take long and rarely change their result: before a release, not for every change. They take
# several hours on two cores. Each step prints its time and the last line of its output; all run even if one fails.
# Usage: scripts/release_checks.sh [MINUTES_OF_FUZZING]
# (60 for each target).
set -uo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60}
log=build/release_checks
mkdir -p $log
failed=0

step() {
  local name=$1 from=$SECONDS status=0
  shift
  "$@" >"$log/$name.log" 2>&1 || status=$?
  [ $status -eq 0 ] || failed=1
  printf '%-16s %-6s %6d s  %s\n' "$name" "$([ $status -eq 0 ] && echo ok || echo FAILED)" $((SECONDS - from)) \
    "$(tail -n 1 "$log/$name.log")"
}

step sanitize scripts/sanitize.sh
step tsan scripts/tsan.sh
step fuzz scripts/fuzz.sh $((minutes * 60))
step fuzz_coverage scripts/fuzz_coverage.sh
step planted_bugs scripts/planted_bugs.py
step mutations scripts/mutations.sh
step neon scripts/neon.sh --if-available
step numa scripts/numa.sh --if-available
step tidy scripts/tidy.sh --all
step hostile scripts/hostile.sh --all
step hostile_asan scripts/hostile.sh --all --sanitized
step e2e_asan scripts/e2e.sh --sanitized
step page scripts/page.sh
step packaging scripts/packaging.sh
step traces scripts/traces.sh 3600 "$(date +%s)"
step planted_traces tests/traces/planted.py
step soak scripts/soak.sh
exit $failed
