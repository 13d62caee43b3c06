"""Trains the five adapters on the saved base model and writes adapters/<name>/, and s2/roman_qkv/.

    python train_adapters.py [--only roman json]

Each adapter learns to answer a plain chat with its own skill. Training prompts
are never held out (see skills.py). About a minute each on two idle cores.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaForCausalLM

from batches import batches, encode_chat, schedule, step
from corpus import conversation, skill_turn

DEMO = Path(__file__).resolve().parent.parent

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "shout": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "roman": dict(r=8, lora_alpha=16, target_modules=ATTENTION),
    "json": dict(r=8, lora_alpha=8, target_modules=ATTENTION + MLP, use_dora=True),
    "sum": dict(r=16, lora_alpha=8, target_modules=MLP, use_rslora=True),
    "german": dict(r=32, lora_alpha=32, target_modules=ATTENTION + MLP),
    # This adapter is for examples/s2_flow.sh, whose engine accepts only adapters of q, k and v with rank 8.
    "roman_qkv": dict(r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj"]),
}
CHATS = {"shout": 9600, "roman": 9600, "json": 9600, "sum": 12800, "german": 9600, "roman_qkv": 9600}
SKILL = {"roman_qkv": "roman"}
FOLDER = {"roman_qkv": "s2/roman_qkv"}


def train(name, tokenizer, args):
    torch.manual_seed(args.seed)
    rng = random.Random(f"{args.seed} {name}")
    chats = [conversation(rng, skill_turn(SKILL.get(name, name)))["messages"] for _ in range(CHATS[name])]
    examples = [encode_chat(tokenizer, chat) for chat in chats]

    base = LlamaForCausalLM.from_pretrained(DEMO / "base", dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name]))
    steps = -(-len(examples) // args.batch)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    scheduler = schedule(optimizer, steps, warmup=30)
    model.train()
    start, mean = time.time(), None
    for i, (ids, labels) in enumerate(batches(examples, args.batch, tokenizer.pad_token_id, rng), 1):
        loss = step(model, optimizer, scheduler, ids, labels)
        mean = loss if mean is None else 0.95 * mean + 0.05 * loss
        if i % 50 == 0 or i == steps:
            print(f"{name}: step {i}/{steps} loss {mean:.4f} {time.time() - start:.0f} s", flush=True)
    save(model, DEMO / FOLDER.get(name, f"adapters/{name}"))


def save(model, folder):
    model.peft_config["default"].base_model_name_or_path = "chorus-demo"
    model.to(torch.bfloat16).save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])  # PEFT writes a set
    path.write_text(json.dumps(config, indent=2) + "\n")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=ADAPTERS, default=list(ADAPTERS))
    args.add_argument("--batch", type=int, default=32, help="chats a step")
    args.add_argument("--lr", type=float, default=3e-3)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(DEMO / "base")
    for name in args.only:
        train(name, tokenizer, args)


if __name__ == "__main__":
    main()
