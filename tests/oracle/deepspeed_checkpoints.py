#!/usr/bin/env python3
"""Makes DeepSpeed checkpoints of two tiny models with DeepSpeed itself, on the CPU, and the models' own files.

Usage: deepspeed_checkpoints.py MODELS CORPUS   (tests/goldens/sources tests/fuzz/deepspeed_states_fuzz)
The checkpoints are also the corpus of a fuzz target, which is a flat directory: their files are CORPUS/VARIANT--NAME.
Needs torch, transformers, safetensors and deepspeed.
"""
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.multiprocessing as multiprocessing
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

CONFIG = dict(vocab_size=11, hidden_size=8, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)
# Variants: number of ranks, ZeRO stage, model; frozen parameters; what is removed from the checkpoint afterwards.
VARIANTS = {
    "zero1": dict(ranks=2, stage=1, model="llama"),
    "zero2": dict(ranks=2, stage=2, model="llama", frozen=["model.embed_tokens.weight"]),
    "zero2_partitions": dict(ranks=3, stage=2, model="llama", frozen=["model.norm.weight"], without_module=True),
    "zero3": dict(ranks=3, stage=3, model="llama", frozen=["model.embed_tokens.weight", "model.norm.weight"]),
    "zero3_tied": dict(ranks=2, stage=3, model="llama_tied"),
    "pipeline": dict(ranks=2, stage=1, model="llama", pipeline=True),
}
TAG = "global_step7"


def make_model(name):
    torch.manual_seed(11)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG, tie_word_embeddings=name == "llama_tied")).float()
    for parameter in model.parameters():  # norms too
        parameter.data = torch.randn(parameter.shape)
    model.tie_weights()
    return model


class EmbeddingStage(torch.nn.Embedding):
    pass


class HeadStage(torch.nn.Linear):
    pass


def pipeline_of(model, config):
    """The layers of the model as those of a DeepSpeed pipeline, each with names of its own."""
    from deepspeed.pipe import PipelineModule
    embedding = EmbeddingStage(config.vocab_size, config.hidden_size)
    layers = [LlamaDecoderLayer(config, i) for i in range(config.num_hidden_layers)]
    norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
    head = HeadStage(config.hidden_size, config.vocab_size, bias=False)
    embedding.load_state_dict(model.model.embed_tokens.state_dict())
    for mine, theirs in zip(layers, model.model.layers):
        mine.load_state_dict(theirs.state_dict())
    norm.load_state_dict(model.model.norm.state_dict())
    head.load_state_dict(model.lm_head.state_dict())
    return PipelineModule(layers=[embedding, *layers, norm, head], num_stages=2, loss_fn=torch.nn.CrossEntropyLoss(),
                          partition_method="uniform")


def save(rank, variant, out):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(variant["ranks"]), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(29500 + os.getppid() % 1000))
    import deepspeed
    from torch.utils.serialization import config as serialization
    serialization.save.storage_alignment = 16  # smaller files
    deepspeed.init_distributed(dist_backend="gloo")
    model = make_model(variant["model"])
    if variant.get("pipeline"):
        model = pipeline_of(model, model.config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in variant.get("frozen", [])
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    # Two groups, as with a weight decay that leaves out norms.
    groups = [{"params": [p for _, p in trained if p.dim() > 1]}, {"params": [p for _, p in trained if p.dim() == 1]}]
    optimizer = torch.optim.SGD([g for g in groups if g["params"]], lr=0.1)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": variant["stage"], "stage3_param_persistence_threshold": 9}})
    engine.save_checkpoint(out, tag=TAG)


class Other:
    """An object that the reader skips."""

    def __init__(self):
        self.state = 1


class Command:
    def __reduce__(self):
        return os.system, ("true",)


def small_files():
    """Small files: one of every field, and one with another type in each."""
    import argparse
    import collections
    from deepspeed.runtime.zero.config import ZeroStageEnum
    shape, flat, size = torch.Size([2, 3]), torch.arange(6.0), torch.Size
    optimizer = lambda **more: {"optimizer_state_dict": {"zero_stage": ZeroStageEnum.weights, "partition_count": [1, 2],
                                                         "fp32_flat_groups": [flat], **more}}
    yield "whole", {"module": {"w": flat.view(2, 3).t(), "n": 1}, "buffer_names": ["b"], "param_shapes": [{"w": shape}],
                    "frozen_param_shapes": {"f": shape}, "frozen_param_fragments": {"f": flat},
                    "shared_params": {"v": "w"}, "args": argparse.Namespace(x=1, other=Other()), "set": {(1, 2)},
                    "counts": collections.Counter("aab"), "deque": collections.deque([1]), "object": {Other(): 1}}
    yield "optimizer", optimizer(scaler=Other(), list=[Other()])
    yield "attributes", optimizer(fp32_flat_groups=[torch.nn.Parameter(flat)])
    yield "none", {"module": None, "optimizer_state_dict": None, "param_shapes": None}
    yield "list", [flat]
    yield "command", {"module": {"w": flat}, "x": Command()}
    for name, value in {"module": [], "buffer_names": [1], "param_shapes": [1], "frozen_param_shapes": {"f": [-1]},
                        "frozen_param_fragments": 1, "shared_params": {"v": 1}}.items():
        yield f"bad_{name}", {name: value}
    yield "bad_extents", {"param_shapes": [{"w": [1] * 17}]}
    yield "bad_stage", optimizer(zero_stage="3")
    yield "bad_count", optimizer(partition_count=[-1])
    yield "bad_groups", optimizer(fp32_flat_groups=[flat.view(2, 3)])


def main(models, corpus):
    from torch.utils.serialization import config as serialization
    serialization.save.storage_alignment = 16  # smaller files
    for name, value in small_files():
        torch.save(value, pathlib.Path(corpus) / name)
    for name in ("llama", "llama_tied"):
        folder = pathlib.Path(models) / name
        make_model(name).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
    for name, variant in VARIANTS.items():
        with tempfile.TemporaryDirectory() as out:
            multiprocessing.spawn(save, args=(variant, out), nprocs=variant["ranks"])
            for path in sorted((pathlib.Path(out) / TAG).glob("*.pt")):
                if variant.get("pipeline") and "optim_states" in path.name:
                    continue  # the layers have files of their own
                if variant.get("without_module") and "model_states" in path.name:
                    states = torch.load(path, weights_only=False)
                    states["module"] = None
                    torch.save(states, path)
                shutil.copy(path, pathlib.Path(corpus) / f"{name}--{path.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
