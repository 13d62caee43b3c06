#!/usr/bin/env bash
# Usage: scripts/mutations.sh [COUNT] [further arguments of tests/mutations/mutations.py]
# Builds Chorus and compares how it and the reference readers read mutated files. COUNT: mutations per kind of file.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-10000}
[ $# -eq 0 ] || shift
scripts/build.sh
venv=build/mutations-venv
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/pip install -q -r tests/mutations/requirements.txt
$venv/bin/python tests/mutations/mutations.py --digest build/release/tests/chorus_read_digest \
  --chorus build/release/bin/chorus --count "$count" "$@"
