"""Makes tests/goldens/opt: tiny OPT models in the forms of 125m and 350m, and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

LINEARS = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
GAINS = dict(q_proj=1.3, k_proj=1.3, v_proj=1.2, out_proj=1.2, fc1=1.2, fc2=1.5)
BASE = dict(num_hidden_layers=3, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None)
VARIANTS = {
    # 125m: norms before the blocks. The embedding is small beside the positions and the blocks' outputs: otherwise its
    # tied output head repeats the last token.
    "opt_125m": dict(
        dtype="float32", old_config=False,
        config=transformers.OPTConfig(**BASE, hidden_size=44, num_attention_heads=4, ffn_dim=150, vocab_size=23),
        rules=hashed_goldens.Rules(gains=dict(GAINS, v_proj=1.5, out_proj=1.5),
                                   tables=dict(embed_tokens=0.4, embed_positions=2.0), bias=0.2),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # 350m: norms after the sums, and a narrower embedding. Each norm makes the residual smaller, so that biases and the
    # mean of the activations outweigh the tokens after a few layers, and the greedy text repeats one token. Hence small
    # biases and blocks.
    "opt_350m": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.OPTConfig(**BASE, hidden_size=48, num_attention_heads=6, ffn_dim=130, vocab_size=22,
                                      word_embed_proj_dim=26, do_layer_norm_before=False),
        rules=hashed_goldens.Rules(gains=dict(GAINS, out_proj=0.8, fc2=0.8, project_in=1.0, project_out=0.65),
                                   tables=dict(embed_tokens=1.0, embed_positions=1.0), bias=0.1),
        adapters=["dora_r4_f16", "lora_r8_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.OPTForCausalLM, targets=LINEARS)

if __name__ == "__main__":
    hashed_goldens.make("opt", 20261106, VARIANTS)
