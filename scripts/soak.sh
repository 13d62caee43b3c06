#!/usr/bin/env bash
# Soak tests for releases, not for CI. The first uses many more adapters than the cache holds; the second replaces
# adapters over HTTP under load.
#   scripts/soak.sh [MINUTES]    of the second (60)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
CHORUS_CHURN="1000 10000" build/release/tests/chorus_system_test --gtest_filter='AdapterChurn.*'
python3 tests/soak/replacement.py --chorus build/release/bin/chorus --demo examples/demo --minutes "${1:-60}"
