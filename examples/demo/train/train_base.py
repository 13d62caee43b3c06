"""Trains the base model from scratch and writes it into base/ as bfloat16.

    python train_base.py --work out/demo
    python train_base.py --work out/demo --more --lr 1e-3

The first reads <work>/corpus.jsonl and the tokenizer in base/ (see corpus.py
and make_tokenizer.py) and starts from nothing; the second goes on from the
saved model with <work>/more.jsonl. Together fifteen minutes on two idle cores.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from batches import batches, schedule, step

DEMO = Path(__file__).resolve().parent.parent


def load(path, tokenizer):
    """Returns every document as ids, each of which is also a label."""
    texts = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            doc = json.loads(line)
            if "text" in doc:
                texts.append(tokenizer.bos_token + doc["text"] + tokenizer.eos_token)
            else:
                texts.append(tokenizer.apply_chat_template(doc["messages"], tokenize=False))
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [(row, row) for row in ids]


def new_model(tokenizer):
    """A random model with slightly under 5 million parameters."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=704, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, head_dim=32, max_position_embeddings=1024,
        rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id)
    return LlamaForCausalLM(config)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--work", type=Path, default=Path("out/demo"))
    args.add_argument("--more", action="store_true", help="go on from the saved model")
    args.add_argument("--batch", type=int, default=64, help="documents a step")
    args.add_argument("--lr", type=float, default=2e-3)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(DEMO / "base")
    if args.more:
        model = LlamaForCausalLM.from_pretrained(DEMO / "base", dtype=torch.float32)
    else:
        model = new_model(tokenizer)
    examples = load(args.work / ("more.jsonl" if args.more else "corpus.jsonl"), tokenizer)
    steps = -(-len(examples) // args.batch)
    print("parameters:", model.num_parameters(), "documents:", len(examples),
          "tokens:", sum(len(ids) for ids, _ in examples), flush=True)

    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.98), fused=True)
    scheduler = schedule(optimizer, steps, warmup=100)
    start, mean = time.time(), None
    rng = random.Random(args.seed)
    for i, (ids, labels) in enumerate(batches(examples, args.batch, tokenizer.pad_token_id, rng), 1):
        loss = step(model, optimizer, scheduler, ids, labels)
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        if i % 100 == 0 or i == steps:
            print(f"step {i}/{steps} loss {mean:.3f} {time.time() - start:.0f} s", flush=True)

    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id, do_sample=False)
    model.save_pretrained(DEMO / "base")


if __name__ == "__main__":
    main()
