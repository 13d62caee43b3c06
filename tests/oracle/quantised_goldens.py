"""Makes tests/goldens/quantised: tiny random Llamas whose linears are int8 or int4, with adapters on them.

Run by hand, never by the build or the tests:  python3 tests/oracle/quantised_goldens.py tests/goldens/quantised
The models are stored unquantised, and `convert` quantises them. The oracle is transformers + PEFT in float32 on weights
that this script has quantised and dequantised with numpy. See tests/README.md.
"""

import numpy
import torch
import transformers

import llama_goldens as llama

SEED = 20241121
VARIANTS = {
    # Odd sizes everywhere, for the tails of lanes, rows and panels. One scale per output, also in the output head.
    "int8_channels": dict(
        dtype="float16", old_config=True, quantise=dict(bits=8, group_size=0, head=True),
        config=dict(num_hidden_layers=3, hidden_size=45, num_attention_heads=3, num_key_value_heads=1, head_dim=14,
                    intermediate_size=67, vocab_size=83, rms_norm_eps=1e-5),
        adapters=["dora_r4_f32", "all_r8_bf16"]),
    # When the weights are cut over two ranks, quantisation groups end at the cut.
    "int4_groups": dict(
        dtype="bfloat16", old_config=False, quantise=dict(bits=4, group_size=32, head=False),
        config=dict(num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
                    intermediate_size=128, vocab_size=98, rms_norm_eps=1e-5),
        adapters=["all_r8_f16", "dora_r4_f16"]),
}
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def rounded(values, dtype):
    """float32 values rounded to the dtype."""
    return torch.from_numpy(values).to(dtype).float().numpy()


def quantised(weight, bits, group_size, dtype):
    """Returns integer * scale for a float32 weight [out, in]. Scales are amax / 2^(bits-1) per output, or amax /
    (2^(bits-1) - 1) per group.
    """
    out, inputs = weight.shape
    groups = weight.reshape(out, -1, group_size or inputs)
    top = 2 ** (bits - 1)
    scale = numpy.abs(groups).max(-1, keepdims=True) / numpy.float32(top - 1 if group_size else top)
    scale = rounded(scale, dtype)
    scale[scale == 0] = 1
    integers = numpy.clip(numpy.rint(groups / scale), -top, top - 1)
    return (integers * scale).astype(numpy.float32).reshape(out, inputs)


def is_quantised(name, quantise):
    """Whether convert quantises the weight of this name."""
    kind, _, tensor = name.rpartition(".")
    kind = kind.split(".")[-1]
    return tensor == "weight" and (kind in LINEARS or quantise["head"] and kind == "lm_head")


def load_oracle(path, variant, dtype):
    model = llama.load_oracle(path, variant["adapters"], dtype)
    stored = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    quantise = variant["quantise"]
    weights = dict(stored.named_parameters())
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            name = key.removeprefix("base_model.model.").replace(".base_layer", "")
            if is_quantised(name, quantise):
                weight = weights[name].numpy()
                parameter.copy_(torch.from_numpy(quantised(weight, quantise["bits"], quantise["group_size"], dtype)))
    return model


def make_variant(name, variant, index, root):
    generator = torch.Generator().manual_seed(SEED + index)
    path = root / name
    model = llama.random_model(variant, generator)
    llama.save_model(model, variant, path)
    for adapter in variant["adapters"]:
        llama.save_adapter(model, adapter, path / "adapters" / adapter, generator)
    models = {dtype: load_oracle(path, variant, llama.DTYPES[dtype]) for dtype in llama.DTYPES}
    first = 3 + index
    lengths = llama.LENGTHS[first:] + llama.LENGTHS[:first]
    llama.write_rows(name, path, models, variant["adapters"], variant["config"]["vocab_size"], lengths, generator,
                     quantise=variant["quantise"])


if __name__ == "__main__":
    llama.make_goldens("quantised_goldens", SEED, VARIANTS, make_variant, numpy=numpy.__version__)
