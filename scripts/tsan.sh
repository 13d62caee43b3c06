#!/usr/bin/env bash
# Runs the tests of the layers that start threads under ThreadSanitizer (the tsan preset, clang).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci
layers=(base comm engine runtime server)
cmake --preset tsan >/dev/null
targets=()
for layer in "${layers[@]}"; do
  compgen -G "src/$layer/*_test.cc" >/dev/null || compgen -G "src/$layer/*/*test.cc" >/dev/null || continue
  targets+=("chorus_${layer}_test")
done
cmake --build --preset tsan --target "${targets[@]}"
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 TSAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
names=$(IFS='|'; echo "${layers[*]}")
ctest --test-dir build/tsan --output-on-failure -j "$(nproc)" -R "^($names)\."
