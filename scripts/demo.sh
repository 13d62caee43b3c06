#!/usr/bin/env bash
# The main job on a fresh Debian 12 machine: builds Chorus, converts and builds the demo model, answers one prompt by
# the base and five adapters in one mixed batch, and asks a running server the same.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh

chorus=build/release/bin/chorus
demo=examples/demo
work=$(mktemp -d)
server=
cleanup() {
  [ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

echo
echo "== Hugging Face model -> checkpoint -> engine =="
$chorus convert --model_dir $demo/base --output_dir "$work/checkpoint" --dtype bfloat16
$chorus build --checkpoint_dir "$work/checkpoint" --output_dir "$work/engine" --lora_plugin enable --dora_plugin enable
ls -l "$work/checkpoint" "$work/engine" | awk 'NF > 8 {printf "  %10d bytes  %s\n", $5, $9}'

echo
echo "== The server, one base model and the adapters of $demo/adapters =="
$chorus serve --engine_dir "$work/engine" --tokenizer_dir $demo/base --model_name chorus-demo \
  --lora_dir $demo/adapters --port 0 --port_file "$work/port" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [ -s "$work/port" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$work/server.log"; exit 1; }
  sleep 0.1
done
python3 $demo/ask.py --url "http://127.0.0.1:$(cat "$work/port")" --prompts $demo/prompts/demo.jsonl
kill -TERM "$server"
wait "$server"
server=

echo
echo "== Speed on this machine (the demo model fits the cache, so its share of the memory's read roof is no limit) =="
$chorus bench throughput --engine_dir "$work/engine" --batch 1,8 --mixed 0,5 --adapters $demo/adapters \
  --prompt 32 --new 32 --passes 3 --warmup 1

cat <<EOF

== How to go on ==
Start the server:   $chorus serve $demo/base --lora_dir $demo/adapters
Ask it:             curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
                      -d '{"model": "roman", "messages": [{"role": "user", "content": "47"}]}'
From Python:        from openai import OpenAI
                    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
                    print(client.chat.completions.create(model="roman",
                          messages=[{"role": "user", "content": "47"}]).choices[0].message.content)
Your own model:     $chorus serve YOUR_HF_DIRECTORY --lora_dir YOUR_ADAPTERS
EOF
