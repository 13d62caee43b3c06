#!/usr/bin/env bash
# TensorRT-LLM's LoRA example for the Executor, with only program names and paths changed, on the demo model and two of
# its adapters: converts and builds the model, converts the adapters, and runs a program that sends each adapter's
# tensors once and its task id afterwards. Checks the answers.
#
#   examples/s2_flow.sh [CHORUS] [LORA_EXAMPLE]      the programs; default: what scripts/demo.sh makes, and
#                                                    examples/cpp built over it
set -euo pipefail
cd "$(dirname "$0")/.."
chorus=${1:-build/release/bin/chorus}
lora_example=${2:-build/examples/lora}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x "$lora_example" ]; then
  step() { "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }; }
  step cmake --install build/release --prefix "$work/prefix"
  step cmake -S examples/cpp -B build/examples -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix"
  step cmake --build build/examples --target lora
fi

BASE_MODEL=examples/demo/base
ROMAN=examples/demo/s2/roman_qkv   # q, k and v of rank 8
SHOUT=examples/demo/adapters/shout # q and v of rank 4

$chorus convert --model_dir ${BASE_MODEL} \
    --output_dir "$work/demo/trt_ckpt/fp16/1-gpu/" \
    --dtype float16

$chorus build --checkpoint_dir "$work/demo/trt_ckpt/fp16/1-gpu/" \
    --output_dir "$work/demo_with_lora_qkv/trt_engines/fp16/1-gpu/" \
    --remove_input_padding enable \
    --gpt_attention_plugin float16 \
    --context_fmha enable \
    --paged_kv_cache enable \
    --gemm_plugin float16 \
    --lora_plugin float16 \
    --max_batch_size 128 \
    --max_input_len 512 \
    --max_seq_len 562 \
    --lora_dir $ROMAN \
    --max_lora_rank 8 \
    --lora_target_modules "attn_q" "attn_k" "attn_v"

$chorus lora-convert -i $ROMAN -o "$work/roman-weights" --storage-type float16
$chorus lora-convert -i $SHOUT -o "$work/shout-weights" --storage-type float16

# Converts the prompts to token ids, and below the example's answers to text.
cat >"$work/chats.jsonl" <<'CHATS'
{"messages": [{"role": "user", "content": "seven cats and five dogs"}]}
{"messages": [{"role": "user", "content": "eleven wolves and four birds"}]}
CHATS
$chorus chat-template --tokenizer_dir ${BASE_MODEL} --add_generation_prompt \
    --input_file "$work/chats.jsonl" --output_file "$work/prompts.jsonl"
$chorus tokenize --tokenizer_dir ${BASE_MODEL} --no_special_tokens \
    --input_file "$work/prompts.jsonl" --output_file "$work/prompt_ids.jsonl"

"$lora_example" "$work/demo_with_lora_qkv/trt_engines/fp16/1-gpu/" "$work/prompt_ids.jsonl" \
    "$work/roman-weights" "$work/shout-weights" >"$work/answer_ids.jsonl" 2>"$work/errors"

$chorus detokenize --tokenizer_dir ${BASE_MODEL} --skip_special_tokens \
    --input_file "$work/answer_ids.jsonl" --output_file "$work/answers.jsonl"
cat "$work/answers.jsonl"
tail -n 1 "$work/errors"
diff "$work/answers.jsonl" - <<'ANSWERS'
"VII cats and V dogs"
"XI wolves and IV birds"
"SEVEN CATS AND FIVE DOGS"
"ELEVEN WOLVES AND FOUR BIRDS"
ANSWERS
grep -qx "task 2: LoRA task 2 not found in cache. Please send LoRA weights with request" "$work/errors"
echo "s2_flow: the answers are right"
