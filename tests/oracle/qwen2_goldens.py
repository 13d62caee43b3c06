"""Makes tests/goldens/qwen2: tiny random Qwen2 models in the way of llama_goldens.py.

Run by hand, never by the build or the tests:  python3 tests/oracle/qwen2_goldens.py tests/goldens/qwen2
The models are smaller than Llama's, because all goldens share 10 MB. See tests/README.md.
"""

import json

import torch
import transformers

import llama_goldens as llama

SEED = 20260211
llama.ADAPTERS.update({
    "all_r4": dict(r=4, lora_alpha=8, target_modules=llama.ALL),
    "dora_r3": dict(r=3, lora_alpha=6, use_dora=True, target_modules=llama.ALL),
    "rslora_r5": dict(r=5, lora_alpha=7, use_rslora=True, target_modules=llama.ALL),
})
VARIANTS = {
    # Three query heads per KV head, and attention wider than the hidden size. config.json has the form of transformers
    # 4 and a window that has no effect, because use_sliding_window is false.
    "qwen2": dict(
        dtype="bfloat16", old_config=True, window=dict(use_sliding_window=False, sliding_window=16, max_window_layers=1),
        config=dict(hidden_size=22, num_attention_heads=6, num_key_value_heads=2, head_dim=6, intermediate_size=14,
                    vocab_size=21, rms_norm_eps=1e-6),
        adapters=["all_r4_f16", "dora_r3_f16", "rslora_r5_bf16"]),
    # One KV head, and layer_types in config.json.
    "qwen2_tied": dict(
        dtype="float16", old_config=False, window={},
        config=dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=1, intermediate_size=18, vocab_size=19,
                    tie_word_embeddings=True, rms_norm_eps=1e-5),
        adapters=["dora_r3_bf16"]),
}


def make_variant(name, variant, index, root):
    generator = torch.Generator().manual_seed(SEED + index)
    path = root / name
    config = transformers.Qwen2Config(**llama.BASE, **variant["config"])
    model = llama.fill(transformers.Qwen2ForCausalLM(config), generator)
    with torch.no_grad():
        for layer in model.model.layers:
            # With few dimensions per head, little of the cache's rounding is averaged out of the attention scores.
            layer.self_attn.q_proj.weight.mul_(0.25)
    llama.save_model(model, variant, path)
    config_path = path / "config.json"
    written = json.loads(config_path.read_text())
    if variant["old_config"]:
        del written["layer_types"]
    config_path.write_text(json.dumps({**written, **variant["window"]}, indent=2, sort_keys=True) + "\n")
    for adapter in variant["adapters"]:
        llama.save_adapter(model, adapter, path / "adapters" / adapter, generator)
    models = {dtype: llama.load_oracle(path, variant["adapters"], llama.DTYPES[dtype]) for dtype in llama.DTYPES}
    llama.write_rows(name, path, models, variant["adapters"], variant["config"]["vocab_size"], llama.LENGTHS, generator)


if __name__ == "__main__":
    llama.make_goldens("qwen2_goldens", SEED, VARIANTS, make_variant)
