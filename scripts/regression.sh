#!/usr/bin/env bash
# Compares the work of fixed model steps with the files in bench/regression/, which --update rewrites:
#   the list of ops must be equal
#   the instructions on the AVX2 path must be at most 2 % more; callgrind counts them, so other load does not matter
#   an engine with adapters enabled but unused must do exactly the same work as an engine without adapters
#   a repeated step must not allocate memory
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build build/release --target chorus chorus_step_probe >/dev/null
probe=$PWD/build/release/bench/chorus_step_probe
work=build/regression
rm -rf $work
mkdir -p $work

$probe make $work/model
log=$work/log
build() {
  build/release/bin/chorus build --checkpoint_dir $work/checkpoint --output_dir "$work/$1" --max_batch_size 16 \
    --max_num_tokens 128 "${@:2}" >>$log 2>&1 || { cat $log; exit 1; }
}
build/release/bin/chorus convert --model_dir $work/model/base --output_dir $work/checkpoint --dtype bfloat16 \
  >$log 2>&1 || { cat $log; exit 1; }
build plain
build adapters --lora_plugin enable --dora_plugin enable

ops() { $probe ops avx2 "$work/$1" "${@:2}" >"$work/$1.ops"; }
count() {
  valgrind --tool=callgrind --callgrind-out-file="$work/$1.counts" --collect-atstart=no \
    --toggle-collect=chorusMeasuredStep --dump-before=chorusStepDone \
    $probe count avx2 "$work/$1" "${@:2}" >"$work/$1.steps" 2>"$work/$1.log" || { cat "$work/$1.log"; exit 1; }
}
ops plain
ops adapters $work/model/adapters
count plain & plain=$!
count adapters $work/model/adapters
wait $plain
exec bench/regression/compare.py --work $work --compiler "$(c++ --version | head -n 1)" "$@"
