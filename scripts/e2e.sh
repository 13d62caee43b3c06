#!/usr/bin/env bash
# End-to-end tests of the server: builds Chorus, then runs tests/e2e/ with the openai package from PyPI.
#   scripts/e2e.sh                release build
#   scripts/e2e.sh --sanitized    the server with ASan and UBSan (the dev preset), with more time for everything
# Further arguments go to tests/e2e/run.py (--only TEXT).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --sanitized ]; then
  shift
  scripts/install_deps.sh --ci
  cmake --preset dev >/dev/null
  cmake --build --preset dev --target chorus
  export CHORUS_TEST_TIME_SCALE=${CHORUS_TEST_TIME_SCALE:-6} ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
  export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  chorus=build/dev/bin/chorus
else
  scripts/build.sh
  chorus=build/release/bin/chorus
fi
scripts/install_deps.sh --e2e
venv=build/e2e-venv
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/pip install -q -r tests/e2e/requirements.txt
$venv/bin/python tests/e2e/run.py --chorus $chorus --demo examples/demo "$@"
