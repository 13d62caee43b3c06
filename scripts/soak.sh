#!/usr/bin/env bash
# Soak tests for releases, not for CI. The first uses many more adapters than the cache holds; the second replaces
# adapters over HTTP under load; the third has 256 streams over 64 adapters for ten minutes; the last two, 10,000 idle connections.
#   scripts/soak.sh [MINUTES]    of the second (60)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
CHORUS_CHURN="1000 10000" build/release/tests/chorus_system_test --gtest_filter='AdapterChurn.*'
python3 tests/soak/replacement.py --chorus build/release/bin/chorus --demo examples/demo --minutes "${1:-60}"
python3 tests/soak/serving.py --chorus build/release/bin/chorus --demo examples/demo --seconds 600
python3 tests/soak/idle_connections.py --chorus build/release/bin/chorus --demo examples/demo
python3 tests/soak/idle_connections.py --chorus build/release/bin/chorus --demo examples/demo --tls
