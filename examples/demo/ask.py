#!/usr/bin/env python3
"""Ask a running Chorus server the same prompts through the base model and every demo adapter, all at once.

  ask.py --url http://127.0.0.1:8000 [--base chorus-demo] ["eleven wolves and four birds" ...]

Prints a table and checks each adapter's answer against prompts/SKILL.jsonl; exit status 1 when one is wrong.
Standard library only.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SKILLS = ["shout", "roman", "json", "sum", "german"]
PROMPTS = ["eleven wolves and four birds", "four goats and two trees"]


def answers():
    """Right answers of all held-out prompts: (skill, prompt) -> answer."""
    table = {}
    for skill in SKILLS:
        for line in (HERE / "prompts" / f"{skill}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            table[skill, row["prompt"]] = row["answer"]
    return table


def ask(url, model, prompt):
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 48}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=PROMPTS)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--base", default="chorus-demo")
    args = parser.parse_args()
    right = answers()
    jobs = [(prompt, model) for prompt in args.prompts for model in [args.base] + SKILLS]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        texts = list(pool.map(lambda job: ask(args.url, job[1], job[0]), jobs))

    wrong = 0
    width = max(len(prompt) for prompt in args.prompts)
    print(f"{'prompt':{width}}  {'model':11}  {'answer':40}")
    for (prompt, model), text in zip(jobs, texts):
        expected = right.get((model, prompt))
        verdict = "" if expected is None else "right" if text == expected else f"WRONG, expected {expected}"
        wrong += verdict.startswith("WRONG")
        print(f"{prompt:{width}}  {model:11}  {text:40}  {verdict}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
