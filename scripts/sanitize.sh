#!/usr/bin/env bash
# Usage: scripts/sanitize.sh [SECONDS]
# Runs the unit tests of every layer under ASan and UBSan (the dev preset, clang). SECONDS: see scripts/layer_tests.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
scripts/layer_tests.sh dev "${1:-}" $(sed -n 's/^chorus_layer(\([a-z]*\).*/\1/p' CMakeLists.txt) memory
