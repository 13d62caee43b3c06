#!/usr/bin/env bash
# Installs a built tree, builds examples/cpp over the installed package, and runs what it built.
#
#   run.sh CMAKE BUILD_DIR WORK_DIR CXX
set -euo pipefail
cmake=$1 build=$2 work=$3 cxx=$4
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"
step() { # runs a command and shows what it said if it fails
  "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }
}

step "$cmake" --install "$build" --prefix "$work/prefix"
# Another place, since a package may be moved.
mv "$work/prefix" "$work/moved"
step "$cmake" -S "$source/examples/cpp" -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" \
  -DCMAKE_CXX_COMPILER="$cxx"
step "$cmake" --build "$work/examples"
if grep -rl "$source" "$work"/moved/lib*/cmake "$work"/moved/lib/*/cmake 2>/dev/null; then
  echo "the installed package names the source tree"
  exit 1
fi

step "$source/examples/s2_flow.sh" "$work/moved/bin/chorus" "$work/examples/lora"
cat "$work/log"

# The others on an engine of the demo model, over the tokens of "twenty doors and thirty dogs" in a chat.
step "$work/moved/bin/chorus" convert --model_dir "$source/examples/demo/base" --output_dir "$work/checkpoint"
step "$work/moved/bin/chorus" build --checkpoint_dir "$work/checkpoint" --output_dir "$work/engine"
prompt=(0 4 335 506 265 295 500 1 5)
step "$work/examples/basic" "$work/engine" "${prompt[@]}"
grep -q "^0 4 335 506 265 295 500 1 5 46 292 294 506 265 295 500 19 1 " "$work/log" || { cat "$work/log"; exit 1; }
step "$work/examples/streaming" "$work/engine" "${prompt[@]}"
grep -q '"stage":"GENERATION_COMPLETE"' "$work/log" || { cat "$work/log"; exit 1; }
step "$work/examples/cancel" "$work/engine" "${prompt[@]}"
grep -q "has already been processed and was terminated" "$work/log" || { cat "$work/log"; exit 1; }
step "$work/examples/logits_post_processor" "$work/engine" 42 29 "${prompt[@]}"
rm -rf "$work"
echo "examples over the installed package: all right"
