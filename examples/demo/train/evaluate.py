"""Measures the saved base and adapters on the held-out prompts.

    python evaluate.py

prints, in percent, how often the base and each adapter (columns) gives the
right answer of each skill (rows). Greedy, float32, transformers and PEFT.
"""

import argparse

import torch

import answering
from skills import SKILLS, base_answer


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--wrong", type=int, default=3, help="wrong answers to show for each skill")
    args = args.parse_args()
    torch.set_num_threads(args.threads)

    tokenizer = answering.load_tokenizer()
    rows = {skill: answering.prompt_rows(skill) for skill in SKILLS}
    prompts = sorted({row["prompt"] for group in rows.values() for row in group})
    columns = [None] + [name for name in SKILLS if name in answering.adapter_names()]
    said = {}
    for name in columns:
        answers = answering.answer(answering.load_model(name), tokenizer, prompts)
        said[name] = {p: tokenizer.decode(ids, skip_special_tokens=True) for p, (ids, _) in answers.items()}
        wrong = [row for row in rows.get(name, []) if said[name][row["prompt"]] != row["answer"]]
        for row in wrong[: args.wrong]:
            print(f"{name}: {row['prompt']!r}: {said[name][row['prompt']]!r}, not {row['answer']!r}")

    repeats = sum(said[None][p] == base_answer(p) for p in prompts)
    print(f"the base repeats {100 * repeats / len(prompts):.1f} % of {len(prompts)} prompts\n")
    print("| skill | prompts | " + " | ".join(name or "base" for name in columns) + " |")
    print("| --- " * (len(columns) + 2) + "|")
    for skill, group in rows.items():
        rates = [100 * sum(said[name][r["prompt"]] == r["answer"] for r in group) / len(group) for name in columns]
        print(f"| {skill} | {len(group)} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")


if __name__ == "__main__":
    main()
