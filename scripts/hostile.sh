#!/usr/bin/env bash
# Runs hostile clients and tenants against a server, each beside a well-behaved client that must not be affected
# (tests/hostile/).
#   scripts/hostile.sh                release build, the quick subset
#   scripts/hostile.sh --all          release build, every scenario
#   scripts/hostile.sh --sanitized    the server with ASan and UBSan (the dev preset), the quick subset; with --all every one
# Further arguments go to tests/hostile/run.py (--only TEXT, --report FILE).
set -euo pipefail
cd "$(dirname "$0")/.."
quick=(--quick)
sanitized=()
rest=()
for argument in "$@"; do
  case $argument in
    --all) quick=() ;;
    --sanitized) sanitized=(--sanitized) ;;
    *) rest+=("$argument") ;;
  esac
done
if [ ${#sanitized[@]} -gt 0 ]; then
  scripts/install_deps.sh --ci
  cmake --preset dev >/dev/null
  cmake --build --preset dev --target chorus
  export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
  chorus=build/dev/bin/chorus
else
  scripts/build.sh --target chorus
  chorus=build/release/bin/chorus
fi
python3 tests/hostile/run.py --chorus $chorus --demo examples/demo "${quick[@]}" "${sanitized[@]}" "${rest[@]}"
