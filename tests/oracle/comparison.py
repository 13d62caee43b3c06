"""Shared by the scripts that compare the program with PEFT over random models."""

import argparse
import collections
import os
import pathlib
import random
import shutil
import sys
import tempfile
import traceback
import warnings

import numpy
import torch
import transformers

from random_base import call

NEW_TOKENS = 5
# logits: [NEW_TOKENS, vocab], -inf for ids that are not tokens of the adapter. slack: [NEW_TOKENS], added to the
# tolerance.
Expected = collections.namedtuple("Expected", "tokens logits slack")


@torch.no_grad()
def greedy(model, prompt):
    ids, rows = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
        rows.append(logits.nan_to_num(-torch.inf, posinf=torch.inf, neginf=-torch.inf))
        ids.append(int(rows[-1].argmax()))
    logits = torch.stack(rows)
    # Deep models with large adapters amplify rounding. We may differ by several times the float32 error of PEFT itself.
    exact = model.double()(input_ids=torch.tensor([ids[:-1]])).logits[0, -NEW_TOKENS:]
    model.float()
    slack = 8 * (exact - logits).nan_to_num(0, posinf=0, neginf=0).abs().amax(-1)
    return Expected(ids[len(prompt) :], logits, slack.tolist())


def random_prompt(rng, tokens, wanted=()):
    """A random prompt of `tokens`; about 30 % of it comes from `wanted`, if any."""
    return [rng.choice(wanted if wanted and rng.random() < 0.3 else tokens) for _ in range(rng.choice([1, 3, 7, 20, 66]))]


def difference(base, expected, tokens, log_probs):
    """Describes the first difference; None when there is none. After a near-tie the two answers continue different
    prompts.
    """
    for step, (token, logits, slack) in enumerate(zip(*expected)):
        tolerance = base.tolerance(logits) + slack
        if token != tokens[step]:
            margin = float(logits[token] - logits[tokens[step]]) if tokens[step] < len(logits) else float("inf")
            return f"token {step} is {tokens[step]}, not {token}, margin {margin:.6f}" if margin > 2 * tolerance else None
        log_prob = float(torch.log_softmax(logits, -1)[token])
        if not abs(log_prob - log_probs[step]) <= 2 * tolerance:
            top = logits.topk(2).values
            return (f"log probability of token {step} ({token}, margin {float(top[0] - top[1]):.6f}) is "
                    f"{log_probs[step]:.6f}, not {log_prob:.6f}")
    return None


def run(chorus, engine, scratch, adapters, rows, flags=()):
    """Answers rows of (index into adapters or -1, prompt) in one batch. Returns (tokens, log probabilities), each [row,
    NEW_TOKENS].
    """
    (scratch / "prompts.csv").write_text("".join(",".join(map(str, prompt)) + "\n" for _, prompt in rows))
    uids = ["--lora_dir", *adapters, "--lora_task_uids", *[index for index, _ in rows]] if adapters else []
    call(chorus, "run", "--engine_dir", engine, "--max_output_len", NEW_TOKENS, "--input_file", scratch / "prompts.csv",
         "--output_npy", scratch / "tokens.npy", "--output_log_probs_npy", scratch / "log_probs.npy", "--end_id", -1,
         *uids, *flags)
    return numpy.load(scratch / "tokens.npy")[:, 0], numpy.load(scratch / "log_probs.npy")[:, 0]


class Findings:
    """Reports and counts the differences of one seed."""

    def __init__(self, seed, counts):
        self.seed, self.counts, self.found = seed, counts, False

    def differs(self, what, *about):
        self.found = True
        self.counts["DIFFERENCES"] += 1
        print(f"seed {self.seed}: {what}", *(f"  {line}" for line in about), sep="\n", flush=True)


def main(description, compare):
    """Runs compare(chorus, rng, generator, scratch directory, findings, counts) for every seed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", type=pathlib.Path, default="build/release/bin/chorus", help="the program")
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--count", type=int, default=20, help="seeds, a base model each")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the files of seeds that differ in this directory")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    counts = collections.Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        findings = Findings(seed, counts)
        torch.manual_seed(seed)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"chorus_compare_{seed}_"))
        try:
            compare(arguments.chorus.resolve(), random.Random(seed), torch.Generator().manual_seed(seed), scratch,
                    findings, counts)
        except Exception:
            findings.differs("the comparison failed", traceback.format_exc())
        if findings.found and arguments.keep:
            shutil.copytree(scratch, arguments.keep / str(seed), dirs_exist_ok=True)
        shutil.rmtree(scratch)
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    sys.exit(1 if counts["DIFFERENCES"] else 0)
