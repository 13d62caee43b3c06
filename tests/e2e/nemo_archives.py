"""Writes the demo model and its adapters as NeMo keeps them, with plain code: neither NeMo nor PyTorch is needed."""

import collections
import io
import json
import pickle
import struct
import sys
import tarfile
import types
import unittest.mock
import zipfile

Tensor = collections.namedtuple("Tensor", "dtype shape data")
STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage"}


def read_safetensors(path):
    """Name -> Tensor."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: Tensor(entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


def rows_of(tensor, begin, count):
    size = len(tensor.data) // tensor.shape[0]
    return tensor.data[begin * size:(begin + count) * size]


def stacked(parts, like):
    """The parts, which are bytes of whole rows, one after another."""
    data = b"".join(parts)
    return like._replace(shape=[len(data) // (len(like.data) // like.shape[0]), *like.shape[1:]], data=data)


def torch_file(tensors):
    """The bytes that torch.save() writes for a dictionary of tensors: a zip file with a pickle and the values."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    utils._rebuild_tensor_v2 = types.FunctionType((lambda: None).__code__, {}, "_rebuild_tensor_v2")
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch._utils = utils

    class Storage:
        def __init__(self, key, tensor):
            count = 1
            for extent in tensor.shape:
                count *= extent
            self.id = ("storage", getattr(torch, STORAGES[tensor.dtype]), key, "cpu", count)

    class Stored:
        def __init__(self, key, tensor):
            strides, step = [], 1
            for extent in reversed(tensor.shape):
                strides.insert(0, step)
                step *= extent
            self.arguments = (Storage(key, tensor), 0, tuple(tensor.shape), tuple(strides), False, collections.OrderedDict())

        def __reduce__(self):
            return utils._rebuild_tensor_v2, self.arguments

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return value.id if isinstance(value, Storage) else None

    pickled, out = io.BytesIO(), io.BytesIO()
    with unittest.mock.patch.dict(sys.modules, {"torch": torch, "torch._utils": utils}):
        Pickler(pickled, protocol=2).dump({name: Stored(str(i), t) for i, (name, t) in enumerate(tensors.items())})
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        archive.writestr("archive/version", "3\n")
        for i, tensor in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{i}", tensor.data)
    return out.getvalue()


def write_archive(path, config, tensors):
    members = {"model_config.yaml": json.dumps(config, indent=1).encode(), "model_weights.ckpt": torch_file(tensors)}
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def shape_of(model):
    config = json.loads((model / "config.json").read_text())
    return config, {
        "num_layers": config["num_hidden_layers"], "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"], "num_query_groups": config["num_key_value_heads"],
        "kv_channels": config["head_dim"], "ffn_hidden_size": config["intermediate_size"]}


def write_llama(path, model):
    """A Llama with tied embeddings, from its Hugging Face directory, with Megatron core's names."""
    config, shape = shape_of(model)
    from_file = read_safetensors(model / "model.safetensors")
    out = {"model.embedding.word_embeddings.weight": from_file["model.embed_tokens.weight"],
           "model.decoder.final_layernorm.weight": from_file["model.norm.weight"]}
    size, groups = config["head_dim"], config["num_key_value_heads"]
    queries = config["num_attention_heads"] // groups * size
    for layer in range(config["num_hidden_layers"]):
        of = lambda name: from_file[f"model.layers.{layer}.{name}.weight"]
        q, k, v = (of(f"self_attn.{part}_proj") for part in "qkv")
        gate, up = of("mlp.gate_proj"), of("mlp.up_proj")
        prefix = f"model.decoder.layers.{layer}."
        out[prefix + "self_attention.linear_qkv.weight"] = stacked(
            [part for g in range(groups)
             for part in (rows_of(q, g * queries, queries), rows_of(k, g * size, size), rows_of(v, g * size, size))], q)
        out[prefix + "self_attention.linear_qkv.layer_norm_weight"] = of("input_layernorm")
        out[prefix + "self_attention.linear_proj.weight"] = of("self_attn.o_proj")
        out[prefix + "mlp.linear_fc1.layer_norm_weight"] = of("post_attention_layernorm")
        out[prefix + "mlp.linear_fc1.weight"] = stacked([gate.data, up.data], gate)
        out[prefix + "mlp.linear_fc2.weight"] = of("mlp.down_proj")
    write_archive(path, {
        "mcore_gpt": True, **shape, "max_position_embeddings": config["max_position_embeddings"],
        "encoder_seq_length": config["max_position_embeddings"], "normalization": "rmsnorm",
        "layernorm_epsilon": config["rms_norm_eps"], "activation": "fast-swiglu", "bias": False,
        "position_embedding_type": "rope", "rotary_percentage": 1.0,
        "rotary_base": config["rope_parameters"]["rope_theta"], "share_embeddings_and_output_weights": True,
        "override_vocab_size": config["vocab_size"], "precision": "bf16", "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "tokenizer": {"library": "huggingface", "type": "somebody/model", "model": None}}, out)


def write_adapter(path, model, peft):
    """A PEFT adapter on q, k, v and o of that Llama, as NeMo's unfused LoRA keeps it."""
    _, shape = shape_of(model)
    config = json.loads((peft / "adapter_config.json").read_text())
    names = {"self_attn.q_proj": "self_attention.adapter_layer.lora_unfused_kqv_adapter.q_adapter",
             "self_attn.k_proj": "self_attention.adapter_layer.lora_unfused_kqv_adapter.k_adapter",
             "self_attn.v_proj": "self_attention.adapter_layer.lora_unfused_kqv_adapter.v_adapter",
             "self_attn.o_proj": "self_attention.adapter_layer.lora_dense_attention_adapter"}
    out = {}
    for name, tensor in read_safetensors(peft / "adapter_model.safetensors").items():
        _, _, rest = name.partition("model.layers.")
        layer, _, rest = rest.partition(".")
        module, _, matrix = rest.removesuffix(".weight").rpartition(".")
        part = {"lora_A": "linear_in", "lora_B": "linear_out"}[matrix]
        out[f"model.decoder.layers.{layer}.{names[module]}.{part}.weight"] = tensor
    write_archive(path, {"mcore_gpt": True, **shape, "peft": {
        "peft_scheme": "lora", "lora_tuning": {"adapter_dim": config["r"], "alpha": config["lora_alpha"],
                                               "variant": "canonical"}}}, out)
