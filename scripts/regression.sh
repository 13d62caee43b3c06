#!/usr/bin/env bash
# What a step does, held against bench/regression/: its list of ops exactly, its instructions on the AVX2 path within
# 2 %, as callgrind counts them, so that a busy machine changes nothing; that an engine with adapters enabled and none
# used does exactly what one without them does; and that no step that ran before allocates. --update writes the files
# anew.
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
