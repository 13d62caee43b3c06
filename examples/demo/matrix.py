#!/usr/bin/env python3
"""How often each model is right at each skill, measured through a running server: the table of README.md by Chorus.

  matrix.py --url http://127.0.0.1:8000 [--base chorus-demo] [--limit 250]

Asks every held-out prompt of prompts/ of the base and all adapters, mixed. Exit status 1 when an adapter is right less
than 95 % of the time at its own skill or more than 20 % at another, or the base more than 5 %.
"""
import argparse
import concurrent.futures
import sys

from ask import SKILLS, answers, ask


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--base", default="chorus-demo")
    parser.add_argument("--limit", type=int, default=250, help="prompts of each skill")
    args = parser.parse_args()
    right = answers()
    prompts = {skill: [p for s, p in right if s == skill][:args.limit] for skill in SKILLS}
    models = [args.base] + SKILLS
    jobs = sorted({(model, prompt) for model in models for skill in SKILLS for prompt in prompts[skill]})
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        texts = dict(zip(jobs, pool.map(lambda job: ask(args.url, *job), jobs)))

    fine = True
    print("| skill | " + " | ".join(models) + " |\n" + "|---" * (1 + len(models)) + "|")
    for skill in SKILLS:
        cells = []
        for model in models:
            hits = sum(texts[model, p] == right[skill, p] for p in prompts[skill])
            percent = 100 * hits / len(prompts[skill])
            cells.append(f"{percent:.1f}")
            bound = percent >= 95 if model == skill else percent <= (5 if model == args.base else 20)
            fine = fine and bound
        print(f"| {skill} | " + " | ".join(cells) + " |")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
