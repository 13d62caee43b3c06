"""A made-up Llama with random weights and LoRA adapters for it: speed depends on shapes, not on values. Standard library only."""

import dataclasses
import json
import os
import pathlib
import shutil
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIGNS = bytes(0x3C if value < 128 else 0xBC for value in range(256))


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    inner: int
    layers: int
    heads: int

    def linears(self):
        """(outputs, inputs) of the linears of a layer, by name."""
        attention = {f"self_attn.{name}_proj": (self.hidden, self.hidden) for name in "qkvo"}
        return attention | {"mlp.gate_proj": (self.inner, self.hidden), "mlp.up_proj": (self.inner, self.hidden),
                            "mlp.down_proj": (self.hidden, self.inner)}

    def weights(self):
        """Number of weights in the linears of all layers."""
        return self.layers * sum(rows * columns for rows, columns in self.linears().values())

    def adapter_values(self, rank):
        """Number of values of an adapter on all linears."""
        return self.layers * rank * sum(rows + columns for rows, columns in self.linears().values())


SMALL = Shape(hidden=1024, inner=2816, layers=10, heads=16)


def random_bfloat16(count):
    """Random values of about 0.01."""
    values = bytearray(2 * count)
    values[0::2] = os.urandom(count)
    values[1::2] = os.urandom(count).translate(SIGNS)
    return bytes(values)


def safetensors(shapes, metadata=None):
    """The bytes of a safetensors file with random bfloat16 values. shapes: by name."""
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + random_bfloat16(offset // 2)


def make_base(folder, shape):
    """Writes a Hugging Face directory with the demo's tokenizer."""
    shutil.copytree(ROOT / "examples/demo/base", folder)
    for weights in folder.glob("*.safetensors*"):
        weights.unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": shape.hidden, "intermediate_size": shape.inner, "num_hidden_layers": shape.layers,
               "num_attention_heads": shape.heads, "num_key_value_heads": shape.heads,
               "head_dim": shape.hidden // shape.heads, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], shape.hidden], "model.norm.weight": [shape.hidden]}
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{name}.weight": list(size) for name, size in shape.linears().items()}
        shapes |= {f"{prefix}{name}.weight": [shape.hidden] for name in ("input_layernorm", "post_attention_layernorm")}
    (folder / "model.safetensors").write_bytes(safetensors(shapes))


def adapter_config(shape, rank):
    return json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "task_type": "CAUSAL_LM",
                       "target_modules": [name.split(".")[1] for name in shape.linears()]})


def adapter_weights(shape, rank, metadata=None):
    """The bytes of adapter_model.safetensors, for all linears."""
    shapes = {}
    for layer in range(shape.layers):
        for name, (rows, columns) in shape.linears().items():
            prefix = f"base_model.model.model.layers.{layer}.{name}."
            shapes |= {prefix + "lora_A.weight": [rank, columns], prefix + "lora_B.weight": [rows, rank]}
    return safetensors(shapes, metadata)


def make_adapter(folder, shape, rank):
    """Writes a PEFT directory."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(adapter_config(shape, rank))
    (folder / "adapter_model.safetensors").write_bytes(adapter_weights(shape, rank))
