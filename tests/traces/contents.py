"""The adapters of traces. Each has a label and is made from the label's description alone, with the standard library."""

import json
import random
import shutil
import struct
from array import array

# Adapters of the demo by their directory, others by their parameters:
#   rank, seed        of the low-rank parts, which are drawn from the seed
#   modules           the adapted linears; all if left out
#   dora, rslora      as in PEFT's config
#   ranks             PEFT's rank_pattern
#   saves_norm        modules_to_save has the last norm
#   saves_embedding   modules_to_save has the embedding, with so many rows more than the base model's
#   trains_tokens     trainable_token_indices
#   template          the adapter has a chat template of its own
CONTENTS = {
    "german": {"demo": "german"},
    "json-dora": {"demo": "json"},
    "roman": {"demo": "roman"},
    "shout": {"demo": "shout"},
    "sum": {"demo": "sum"},
    "rank-1": {"rank": 1, "seed": 1, "modules": ["v_proj"]},
    "rank-8": {"rank": 8, "seed": 2, "modules": ["q_proj", "v_proj", "down_proj"]},
    "rank-8-other": {"rank": 8, "seed": 3, "modules": ["q_proj", "v_proj", "down_proj"]},
    "rank-16": {"rank": 16, "seed": 4},
    "rank-32-wide": {"rank": 32, "seed": 12},
    "rank-32": {"rank": 32, "seed": 5, "modules": ["k_proj", "o_proj", "up_proj"], "rslora": True},
    "ranks-mixed": {"rank": 4, "seed": 6, "modules": ["q_proj", "gate_proj", "up_proj"], "ranks": {"gate_proj": 12}},
    "dora-4": {"rank": 4, "seed": 7, "modules": ["v_proj", "o_proj"], "dora": True},
    "norm-saved": {"rank": 2, "seed": 8, "modules": ["q_proj"], "saves_norm": True},
    "embedding-saved": {"rank": 4, "seed": 9, "modules": ["v_proj"], "saves_embedding": 2},
    "tokens-trained": {"rank": 4, "seed": 11, "modules": ["q_proj"], "trains_tokens": list(range(10, 200, 3))},
    "template": {"rank": 8, "seed": 10, "modules": ["k_proj", "v_proj"], "template": True},
}
UPLOADED = [label for label, spec in CONTENTS.items() if "demo" not in spec and not spec.get("template")]
LARGE = ["german", "rank-16", "rank-32-wide", "sum"]  # few of them fit in the caches that are drawn
LINEARS = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
           "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}
MAX_RANK = 32
COPY = "-copy"  # ends the label of a content that the solo server has once more, for compositions of equal adapters


def composable(label):
    """Whether requests may compose this adapter with others: it adds low-rank parts and nothing else."""
    spec = CONTENTS[label]
    return label != "json-dora" and not any(spec.get(key) for key in ("dora", "saves_norm", "saves_embedding", "trains_tokens"))


def linear_sizes(config):
    """Inputs and outputs of each linear of a layer."""
    head, hidden, inner = config["head_dim"], config["hidden_size"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return {"q_proj": (hidden, queries), "k_proj": (hidden, keys), "v_proj": (hidden, keys), "o_proj": (queries, hidden),
            "gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}


def read_tensor(file, name):
    """The dtype, shape and bytes of a tensor of a safetensors file."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    found = json.loads(data[8:8 + size])[name]
    begin, end = (8 + size + offset for offset in found["data_offsets"])
    return found["dtype"], found["shape"], data[begin:end]


def write_tensors(file, tensors):
    """tensors: name -> dtype, shape, bytes."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def floats(rng, shape, low, high):
    count = 1
    for size in shape:
        count *= size
    return "F32", shape, array("f", (rng.uniform(low, high) for _ in range(count))).tobytes()


def write_content(label, base, demo_adapters, directory):
    """Writes the adapter `label` for the model of the directory `base` into a new directory."""
    spec = CONTENTS[label]
    if "demo" in spec:
        shutil.copytree(demo_adapters / spec["demo"], directory)
        return
    write_adapter(spec, base, directory)


def write_adapter(spec, base, directory):
    """Writes an adapter by its parameters."""
    directory.mkdir(parents=True)
    config = json.loads((base / "config.json").read_text())
    modules = spec.get("modules", list(LINEARS))
    peft = {"peft_type": "LORA", "r": spec["rank"], "lora_alpha": 2 * spec["rank"], "target_modules": modules,
            "use_dora": spec.get("dora", False), "use_rslora": spec.get("rslora", False),
            "rank_pattern": spec.get("ranks", {})}
    rng = random.Random(spec["seed"])
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module in modules:
            inputs, outputs = linear_sizes(config)[module]
            rank = spec.get("ranks", {}).get(module, spec["rank"])
            prefix = f"base_model.model.model.layers.{layer}.{LINEARS[module]}.{module}"
            tensors[f"{prefix}.lora_A.weight"] = floats(rng, [rank, inputs], -0.08, 0.08)
            tensors[f"{prefix}.lora_B.weight"] = floats(rng, [outputs, rank], -0.08, 0.08)
            if spec.get("dora"):
                tensors[f"{prefix}.lora_magnitude_vector"] = floats(rng, [outputs], 0.5, 1.5)
    if spec.get("saves_norm"):
        peft["modules_to_save"] = ["model.norm"]
        tensors["base_model.model.model.norm.weight"] = floats(rng, [config["hidden_size"]], 0.5, 1.5)
    embedding = "model.embed_tokens"
    if spec.get("saves_embedding"):
        peft["modules_to_save"] = ["embed_tokens"]
        tensors[f"base_model.model.{embedding}.weight"] = longer_embedding(base, embedding, spec["saves_embedding"])
    if spec.get("trains_tokens"):
        peft["trainable_token_indices"] = spec["trains_tokens"]
        tensors[f"base_model.model.{embedding}.token_adapter.trainable_tokens_delta"] = floats(
            rng, [len(spec["trains_tokens"]), config["hidden_size"]], -0.1, 0.1)
    if spec.get("template"):
        (directory / "chat_template.jinja").write_text(
            "{{ bos_token }}template: {% for message in messages %}{{ message['content'] }} {% endfor %}")
    (directory / "adapter_config.json").write_text(json.dumps(peft))
    write_tensors(directory / "adapter_model.safetensors", tensors)


def longer_embedding(base, name, more):
    """The base model's embedding with its rows in another order, and `more` rows after them."""
    dtype, (rows, hidden), data = read_tensor(base / "model.safetensors", name + ".weight")
    width = len(data) // rows
    moved = data[:400 * width] + data[500 * width:] + data[400 * width:500 * width]
    return dtype, [rows + more, hidden], moved + data[:more * width]
