#!/usr/bin/env bash
# Plays timed traces of requests and adapter changes: the scenarios of tests/traces/scenarios/, then drawn ones. Every answer
# must be byte-equal to its solo answer.
#   scripts/traces.sh [SECONDS] [SEED]    of drawn traces (30, seed 1)
# Further arguments go to tests/traces/run.py (--replay FILE).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
python3 tests/traces/run.py --chorus build/release/bin/chorus --demo examples/demo --seconds "${1:-30}" --seed "${2:-1}" "${@:3}"
