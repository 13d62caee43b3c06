#!/usr/bin/env bash
# Unit tests under ASan and UBSan, then the runtime and server tests under TSan. Fuzz corpora are replayed by ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci

for preset in dev tsan; do
  cmake --preset "$preset" -DCMAKE_CXX_COMPILER=clang++ >/dev/null
done
cmake --build --preset dev
ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  ctest --test-dir build/dev --output-on-failure -j "$(nproc)" -LE 'system|e2e'
cmake --build --preset tsan --target chorus_base_test chorus_runtime_test chorus_server_test
TSAN_OPTIONS=halt_on_error=1 \
  ctest --test-dir build/tsan --output-on-failure -j "$(nproc)" -R '^(base|runtime|server)\.'
