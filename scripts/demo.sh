#!/usr/bin/env bash
# Shows the main use of Chorus on a fresh Debian 12 machine: builds Chorus, converts the demo model and builds its
# engine, answers one prompt by the base model and by five adapters in one mixed batch, and then queries a running
# server.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh --target chorus

chorus=build/release/bin/chorus
demo=examples/demo
work=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

echo
echo "== Hugging Face model -> checkpoint -> engine =="
$chorus convert --model_dir $demo/base --output_dir "$work/checkpoint" --dtype bfloat16
$chorus build --checkpoint_dir "$work/checkpoint" --output_dir "$work/engine" --lora_plugin enable --dora_plugin enable
ls -l "$work/checkpoint" "$work/engine" | awk 'NF > 8 {printf "  %10d bytes  %s\n", $5, $9}'

echo
echo "== One prompt, the base and five adapters, one mixed batch =="
prompt="eleven wolves and four birds"
$chorus run --engine_dir "$work/engine" --tokenizer_dir $demo/base --apply_chat_template --max_output_len 48 \
  --input_text "$prompt" "$prompt" "$prompt" "$prompt" "$prompt" "$prompt" \
  --lora_dir $demo/adapters/{shout,roman,json,sum,german} --lora_task_uids -1 0 1 2 3 4 | grep -v '^Input' | tee "$work/answers"
grep -q '^Largest batch: 6 requests with 5 adapters' "$work/answers"

echo
echo "== The server: twelve requests at once for six models =="
$chorus serve --engine_dir "$work/engine" --tokenizer_dir $demo/base --model_name chorus-demo \
  --lora_dir $demo/adapters --port 0 >"$work/server.log" 2>&1 &
server=$!
url=
for _ in $(seq 300); do
  url=$(grep -o 'ready at http://[^ ]*' "$work/server.log" | cut -d' ' -f3) && break
  kill -0 "$server" 2>/dev/null || { cat "$work/server.log"; exit 1; }
  sleep 0.1
done
$demo/ask.py --url "$url"
kill -TERM "$server"
wait "$server"
server=

echo
echo "== Speed on this machine (the demo model fits the cache, so its share of the memory's read roof is no limit) =="
$chorus bench throughput --engine_dir "$work/engine" --batch 1,8 --mixed 0,5 --adapters $demo/adapters \
  --prompt 32 --new 32 --passes 3 --warmup 1 --roof_mib 256

cat <<EOF

== How to go on ==
Start the server:   $chorus serve $demo/base --lora_dir $demo/adapters
Ask it:             curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
                      -d '{"model": "roman", "messages": [{"role": "user", "content": "seven cats and five dogs"}]}'
From Python:        from openai import OpenAI
                    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
                    print(client.chat.completions.create(model="roman",
                          messages=[{"role": "user", "content": "seven cats and five dogs"}]).choices[0].message.content)
Your own model:     $chorus serve YOUR_HF_DIRECTORY --lora_dir YOUR_ADAPTERS
EOF
