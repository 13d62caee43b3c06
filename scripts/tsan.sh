#!/usr/bin/env bash
# Usage: scripts/tsan.sh [SECONDS]
# Runs the tests of the layers that start threads under ThreadSanitizer (the tsan preset, clang). SECONDS: see
# scripts/layer_tests.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 TSAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
scripts/layer_tests.sh tsan "${1:-}" base comm engine runtime server
