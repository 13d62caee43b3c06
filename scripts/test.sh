#!/usr/bin/env bash
# Builds the release preset (asserts on) and runs every check and test; arguments go to ctest. Names the slowest tests
# and ends with ctest's summary line.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
scripts/check_tree.py
# The tests write thousands of engines and sync each to the disk. If /dev/shm has 4 GiB free, temporary files are kept
# there, in memory.
free_kib=$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)
if [ -z "${TMPDIR:-}" ] && [ "${free_kib:-0}" -gt 4194304 ] && TMPDIR=$(mktemp -d /dev/shm/chorus.XXXXXX 2>/dev/null); then
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
fi
# One test more than cores runs at a time, because tests of several ranks and of the server often wait.
ctest --test-dir build/release --output-on-failure -j "$(($(nproc) + 1))" "$@" | awk '
  / Test +#[0-9]+: .* sec$/ { slow[$4 " " $(NF - 1)] = $(NF - 1) }
  /tests passed, / {
    print ""
    for (n = 0; n < 10; ++n) {
      worst = ""
      for (t in slow) if (worst == "" || slow[t] + 0 > slow[worst] + 0) worst = t
      if (worst == "" || slow[worst] < 1) break
      print "slow: " worst " s"
      delete slow[worst]
    }
  }
  { print; fflush() }'
