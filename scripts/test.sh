#!/usr/bin/env bash
# Builds the release preset (asserts on) and runs every check and test; arguments go to ctest. Names the slowest tests
# and ends with ctest's summary line.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
scripts/check_tree.py
# The tests build thousands of engines, and each is synced to the disk. Where there is room they are kept in memory.
if [ -z "${TMPDIR:-}" ] && [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 4194304 ] 2>/dev/null; then
  export TMPDIR=/dev/shm
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
