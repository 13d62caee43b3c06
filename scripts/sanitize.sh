#!/usr/bin/env bash
# Runs the unit tests of every layer under ASan and UBSan (the dev preset, clang). Arguments are passed to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci
cmake --preset dev >/dev/null
cmake --build --preset dev --target unit_tests
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
ctest --test-dir build/dev --output-on-failure -j "$(nproc)" -E '^system\.|_system_test_NOT_BUILT$' "$@"
