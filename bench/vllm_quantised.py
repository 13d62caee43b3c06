#!/usr/bin/env python3
"""A model's linears as the integers that vLLM's CPU backend multiplies, for bench/compare.py --vllm WIDTH=OUT.

    vllm_quantised.py --model HF_DIR --bits 8|4 --output OUT

Writes the compressed-tensors format: 8 bits as int8 [out, in] with a scale for each output, inputs quantised to int8
token by token as they come (W8A8, what vLLM multiplies fastest); 4 bits as int4, eight to an int32, with a scale for
every 128 inputs. Round to nearest, symmetric; embeddings, norms and the output head stay as they are. For timing: the
weights are close to the model's, calibration is not tried. HF_DIR holds *.safetensors of 2-dimensional linears.
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import save_file

GROUP = 128


def int8_tensors(name, weight):
    scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    integers = (weight.float() / scale).round().clamp(-128, 127).to(torch.int8)
    return {f"{name}.weight": integers, f"{name}.weight_scale": scale.to(torch.bfloat16)}


def int4_tensors(name, weight):
    outputs, inputs = weight.shape
    groups = weight.float().view(outputs, inputs // GROUP, GROUP)
    scale = groups.abs().amax(2, keepdim=True).clamp(min=1e-8) / 7
    nibbles = ((groups / scale).round().clamp(-8, 7) + 8).to(torch.int64).view(outputs, inputs // 8, 8)
    packed = (nibbles << torch.arange(0, 32, 4)).sum(2)
    packed = torch.where(packed >= 2 ** 31, packed - 2 ** 32, packed).to(torch.int32)
    return {f"{name}.weight_packed": packed, f"{name}.weight_scale": scale.squeeze(2).to(torch.bfloat16),
            f"{name}.weight_shape": torch.tensor([outputs, inputs], dtype=torch.int64)}


def quantization_config(bits):
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False}
    inputs = None
    if bits == 8:
        weights["strategy"] = "channel"
        inputs = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
    else:
        weights |= {"strategy": "group", "group_size": GROUP}
    layout = "int-quantized" if bits == 8 else "pack-quantized"
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--bits", required=True, type=int, choices=[8, 4])
    parser.add_argument("--output", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    quantised = int8_tensors if args.bits == 8 else int4_tensors
    tensors = {}
    for path in sorted(args.model.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
                if name.endswith("_proj.weight"):
                    tensors |= quantised(name.removesuffix(".weight"), tensor)
                else:
                    tensors[name] = tensor
    save_file(tensors, args.output / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((args.model / "config.json").read_text())
    config["quantization_config"] = quantization_config(args.bits)
    (args.output / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        if (args.model / name).exists():
            shutil.copy(args.model / name, args.output / name)


if __name__ == "__main__":
    main()
