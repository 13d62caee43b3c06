#!/usr/bin/env bash
# Installs a built tree, builds examples/cpp and examples/architecture against the installed package, and runs the
# programs.
#
#   run.sh CMAKE BUILD_DIR WORK_DIR CXX
set -euo pipefail
cmake=$1 build=$2 work=$3 cxx=$4
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"
step() {  # runs a command and prints its output if it fails
  "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }
}

# Building only the program, as scripts/demo.sh does, must make every installed file: each installed file of the build
# tree is configured, or made by a command that the program depends on.
ninja=$(sed -n 's/^CMAKE_MAKE_PROGRAM:FILEPATH=//p' "$build/CMakeCache.txt")
"$ninja" -C "$build" -t commands bin/chorus >"$work/commands"
installed=$(grep -o "\"$build/[^\"$]*\"" "$build/cmake_install.cmake" | tr -d '"' | grep -v '\.cmake$' | sort -u)
for file in $installed; do
  grep -qF "${file#"$build/"}" "$work/commands" || { echo "$file is installed, and building chorus does not make it"; exit 1; }
done

step "$cmake" --install "$build" --prefix "$work/prefix"
# An installed package may be moved, so the tests use another directory.
mv "$work/prefix" "$work/moved"
step "$cmake" -S "$source/examples/cpp" -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" \
  -DCMAKE_CXX_COMPILER="$cxx"
step "$cmake" --build "$work/examples"
# Every library that the installed program loads, except the compiler's and the C library's own, must be documented.
needed=$(readelf -d "$work/moved/bin/chorus" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
  case $library in
  libc.so.* | libm.so.* | libgcc_s.so.* | libstdc++.so.* | ld-linux*) continue ;;
  esac
  grep -qF "\`$library\`" "$source/docs/dependencies.md" ||
    { echo "bin/chorus loads $library, which docs/dependencies.md does not name"; exit 1; }
done

if grep -rl "$source" "$work"/moved/lib*/cmake "$work"/moved/lib/*/cmake 2>/dev/null; then
  echo "the installed package names the source tree"
  exit 1
fi

step "$source/examples/s2_flow.sh" "$work/moved/bin/chorus" "$work/examples/lora"
cat "$work/log"

# Runs the other examples on an engine of the demo model. The tokens are a chat with "twenty doors and thirty dogs".
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

# A custom architecture: a program `chorus` with one more architecture runs the golden model of that architecture.
step "$cmake" -S "$source/examples/architecture" -B "$work/architecture" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" \
  -DCMAKE_CXX_COMPILER="$cxx"
step "$cmake" --build "$work/architecture"
model=$source/tests/goldens/troubadour/troubadour
if "$work/moved/bin/chorus" convert --model_dir "$model" --output_dir "$work/refused" >"$work/log" 2>&1; then
  echo "the installed chorus knows Troubadour, which is an example"
  exit 1
fi
step "$work/architecture/chorus-troubadour" convert --model_dir "$model" --output_dir "$work/troubadour-checkpoint"
step "$work/architecture/chorus-troubadour" build --checkpoint_dir "$work/troubadour-checkpoint" \
  --output_dir "$work/troubadour-engine"
# The first row of the golden is for the base model.
rows=$(tr -d ' \n' <"$model/case.json")
prompt=${rows#*'"prompt":['}
answer=${rows#*'"float32":{"tokens":['}
echo "${prompt%%]*}" >"$work/prompt.csv"
echo "${answer%%]*}" >"$work/expected.csv"
step "$work/architecture/chorus-troubadour" run --engine_dir "$work/troubadour-engine" --input_file "$work/prompt.csv" \
  --output_csv "$work/answer.csv" --max_output_len 16 --end_id -1
diff "$work/answer.csv" "$work/expected.csv"

rm -rf "$work"
echo "examples over the installed package: all right"
