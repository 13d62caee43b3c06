"""Loads the saved files in float32 and answers prompts greedily.

A module for the other scripts; it is not run by itself.
"""

import json
from collections import defaultdict
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoTokenizer, LlamaForCausalLM

from batches import render

DEMO = Path(__file__).resolve().parent.parent


def load_tokenizer():
    return AutoTokenizer.from_pretrained(DEMO / "base")


def load_model(adapter=None):
    """Loads the base, or the base with one adapter beside it (not merged), in float32."""
    model = LlamaForCausalLM.from_pretrained(DEMO / "base", dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, DEMO / "adapters" / adapter).float()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model.eval()


def adapter_names():
    return sorted(p.parent.name for p in (DEMO / "adapters").glob("*/adapter_config.json"))


def prompt_rows(skill):
    with open(DEMO / "prompts" / f"{skill}.jsonl", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def prompt_ids(tokenizer, prompt):
    return render(tokenizer, [{"role": "user", "content": prompt}], True)


@torch.inference_mode()
def answer(model, tokenizer, prompts, max_new_tokens=48):
    """Generates greedily. For each prompt: the ids up to and including the end token, and the smallest top-2 logit
    margin. Prompts of equal length share a batch.
    """
    groups = defaultdict(list)
    for prompt in prompts:
        ids = prompt_ids(tokenizer, prompt)
        groups[len(ids)].append((prompt, ids))
    answers = {}
    for group in groups.values():
        ids = torch.tensor([ids for _, ids in group])
        out = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_new_tokens,
            output_logits=True, return_dict_in_generate=True)
        top = torch.stack(out.logits, 1).topk(2).values
        for row, (prompt, _) in enumerate(group):
            new = out.sequences[row, ids.shape[1]:].tolist()
            if tokenizer.eos_token_id in new:
                new = new[: new.index(tokenizer.eos_token_id) + 1]
            margin = (top[row, : len(new), 0] - top[row, : len(new), 1]).min().item()
            answers[prompt] = new, margin
    return answers
