#!/usr/bin/env python3
"""Compares `chorus summarize` with rouge-score, and with transformers.

usage: compare_summaries.py --chorus PROGRAM [--seed N] [--count N] [--model DIRECTORY]

Scores: the answers to random articles come from this script, which stands in for the Python of --test_hf. The printed
scores must be those of rouge-score and its bootstrap, digit by digit. Needs rouge-score.

With --model, a Hugging Face directory, the answers of the engine and of transformers to the built-in articles must be
equal in float32, and the perplexities agree to 0.01 %. Needs torch and transformers.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import rouge_goldens as texts

HERE = pathlib.Path(__file__).resolve()
TOKENIZER = HERE.parent.parent.parent / "examples/demo/base"


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr}")
    return result.stdout


def numbers(output, block):
    """The scores that the lines of a model end with."""
    return {name: float(value) for name, value in re.findall(r"^  (.*): (\S+)$", output.split(block)[1], re.M)}


def compare_scores(chorus, seed, count, work):
    rng = random.Random(seed)
    pairs = [pair for pair in texts.pairs(rng, count)]
    stem = rng.random() < 0.5
    rows = [{"article": str(i), "highlights": reference} for i, (reference, _) in enumerate(pairs)]
    data = work / "data.json"
    data.write_text(json.dumps(rows))
    answers = work / "answers"
    answers.write_text("".join(
        json.dumps({"timed": True, "article": i, "text": pairs[index][1], "tokens": 1, "seconds": 1}) + "\n"
        for i, index in enumerate(texts.numpy.random.default_rng(seed).permutation(count))))
    python = work / "python"
    python.write_text(f"#!/bin/sh\ncat {answers}\n")
    python.chmod(0o700)
    output = run(chorus, "summarize", "--test_hf", "--hf_python", python, "--hf_model_dir", TOKENIZER, "--dataset_path", data,
                 "--max_ite", count, "--random_seed", seed, *(["--use_stemmer"] if stem else []))
    scores = [texts.score(*pairs[index], stem) for index in texts.numpy.random.default_rng(seed).permutation(count)]
    expected = texts.aggregate(scores)
    found = numbers(output, "HF beam 0 result")
    if [found[name] for name in texts.NAMES] != [value * 100 for value in expected]:
        sys.exit(f"seed {seed}: rouge-score gives {expected}, chorus {found}")


def compare_with_transformers(chorus, model, work):
    run(chorus, "convert", "--model_dir", model, "--output_dir", work / "checkpoint", "--dtype", "float32")
    run(chorus, "build", "--checkpoint_dir", work / "checkpoint", "--output_dir", work / "engine")
    for batch_size in (1, 3):
        output = run(chorus, "summarize", "--test_trt_llm", "--test_hf", "--engine_dir", work / "engine", "--hf_model_dir", model,
                     "--data_type", "fp32", "--eval_ppl", "--output_len", 40, "--max_input_length", 400, "--batch_size", batch_size,
                     "--hf_python", sys.executable, "--output_dir", work / "out")
        ours, theirs = ((work / "out" / name).read_text().splitlines()[2:] for name in ("trtllm.out", "hf.out"))
        if ours != theirs:
            sys.exit(f"batch size {batch_size}: answers differ:\n{ours}\n{theirs}")
        found, expected = numbers(output, "TensorRT-LLM beam 0 result"), numbers(output, "HF beam 0 result")
        perplexity = "Per-token perplexity"
        if abs(found[perplexity] / expected[perplexity] - 1) > 1e-4:
            sys.exit(f"batch size {batch_size}: perplexity {found[perplexity]}, transformers {expected[perplexity]}")
        print(f"batch size {batch_size}: {len(ours)} answers are equal; perplexity {found[perplexity]:.6g} and "
              f"{expected[perplexity]:.6g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chorus", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="seeds to run, each with 100 random texts")
    parser.add_argument("--model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for seed in range(args.seed, args.seed + args.count):
            compare_scores(args.chorus, seed, 100, work)
        print(f"{100 * args.count} random texts have the scores of rouge-score")
        if args.model:
            compare_with_transformers(args.chorus, args.model, work)


main()
