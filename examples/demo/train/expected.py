"""Writes prompts/expected_float32.jsonl: token by token answers to compare with.

    python expected.py

Each row has an adapter (null for the base), a held-out prompt, its token ids
through the chat template with the generation prompt, and the ids that
transformers and PEFT generate greedily in float32 from the saved files, up to
and with the end token. Only rows whose two best logits lie at least --margin
apart at every step are kept, so rounding cannot change the choice.
"""

import argparse
import json

import torch

import answering
from skills import SKILLS


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rows", type=int, default=8, help="rows for each adapter and for the base")
    args.add_argument("--margin", type=float, default=0.05)
    args.add_argument("--threads", type=int, default=2)
    args = args.parse_args()
    torch.set_num_threads(args.threads)

    tokenizer = answering.load_tokenizer()
    prompts = [row["prompt"] for row in answering.prompt_rows("shout")][: 4 * args.rows]
    with open(answering.DEMO / "prompts" / "expected_float32.jsonl", "w", encoding="utf-8") as f:
        for name in [None, *SKILLS]:
            model = answering.load_model(name)
            kept = 0
            for prompt in prompts:
                if kept == args.rows:
                    break
                # one prompt at a time, like a program that checks against the file
                ids, margin = answering.answer(model, tokenizer, [prompt])[prompt]
                if margin < args.margin:
                    continue
                kept += 1
                row = {
                    "adapter": name, "prompt": prompt, "prompt_ids": answering.prompt_ids(tokenizer, prompt),
                    "generated_ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True),
                    "least_margin": round(margin, 3),
                }
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(name or "base", kept, "rows")


if __name__ == "__main__":
    main()
