"""Makes tests/goldens/sampling/processors.json: the results of transformers' logits processors on random rows.

Run by hand, never by the build or the tests:  python3 tests/oracle/sampling_goldens.py tests/goldens/sampling
Needs torch and transformers; the file has the versions used. Seeds are fixed.

A case has a row of logits, a history, and settings with the executor's names; `kept` are the ids whose logits
transformers leaves above minus infinity, `logits` their values before temperature, and `best` the likeliest one.
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers.generation import logits_process as lp

SEED = 20261121
VOCAB = 40
CASES_EACH = 12


def number(random, low, high):
    return round(low + (high - low) * torch.rand((), generator=random).item(), 3)


def integer(random, low, high):
    return int(torch.randint(low, high + 1, (), generator=random))


def penalties(random, case, prompt):
    """Processors that change logits, in the order of transformers' generate()."""
    chain = []
    if "repetitionPenalty" in case:
        chain.append(lp.RepetitionPenaltyLogitsProcessor(case["repetitionPenalty"]))
    if "noRepeatNgramSize" in case:
        chain.append(lp.NoRepeatNGramLogitsProcessor(case["noRepeatNgramSize"]))
    if "badWords" in case:
        chain.append(lp.NoBadWordsLogitsProcessor(case["badWords"], eos_token_id=None))
    if "minTokens" in case:
        chain.append(lp.MinNewTokensLengthLogitsProcessor(prompt, case["minTokens"], case["endIds"], device="cpu"))
    return chain


def filters(case):
    chain = []
    if "temperature" in case:
        chain.append(lp.TemperatureLogitsWarper(case["temperature"]))
    if "topK" in case:
        chain.append(lp.TopKLogitsWarper(case["topK"]))
    if "topP" in case:
        chain.append(lp.TopPLogitsWarper(case["topP"]))
    if "minP" in case:
        chain.append(lp.MinPLogitsWarper(case["minP"]))
    return chain


def settings(random, kind):
    words = lambda: [[integer(random, 0, 7) for _ in range(integer(random, 1, 3))] for _ in range(6)]
    makers = {
        "repetitionPenalty": lambda: number(random, 0.6, 2.0),
        "noRepeatNgramSize": lambda: integer(random, 1, 4),
        "badWords": words,
        "minTokens": lambda: integer(random, 1, 20),
        "temperature": lambda: number(random, 0.3, 2.0),
        "topK": lambda: integer(random, 1, VOCAB + 5),
        "topP": lambda: number(random, 0.05, 0.99),
        "minP": lambda: number(random, 0.01, 0.6),
    }
    case = {name: makers[name]() for name in kind}
    if "minTokens" in case:
        case["endIds"] = [integer(random, 0, VOCAB - 1), integer(random, 0, VOCAB - 1)]
    return case


def main(directory):
    random = torch.Generator().manual_seed(SEED)
    kinds = [[name] for name in ("repetitionPenalty", "noRepeatNgramSize", "badWords", "minTokens", "temperature",
                                 "topK", "topP", "minP")]
    everything = ["repetitionPenalty", "noRepeatNgramSize", "badWords", "minTokens", "temperature"]
    kinds += [everything + [name] for name in ("topK", "topP", "minP")] + [["temperature", "topK", "topP"]]
    cases = []
    for kind in kinds:
        for _ in range(CASES_EACH):
            case = settings(random, kind)
            # Few different tokens, so that n-grams and words repeat.
            prompt = [integer(random, 0, 7) for _ in range(integer(random, 1, 20))]
            generated = [integer(random, 0, 7) for _ in range(integer(random, 0, 12))]
            row = torch.randn((1, VOCAB), generator=random) * 3
            row = torch.round(row * 1000) / 1000
            ids = torch.tensor([prompt + generated])
            scores = row.clone()
            for processor in penalties(random, case, len(prompt)):
                scores = processor(ids, scores)
            changed = scores[0].tolist()
            for processor in filters(case):
                scores = processor(ids, scores)
            kept = [i for i, x in enumerate(scores[0].tolist()) if x != float("-inf")]
            if not kept:
                continue
            cases.append({"settings": case, "prompt": prompt, "generated": generated,
                          "row": [round(x, 3) for x in row[0].tolist()], "kept": kept,
                          "logits": [round(changed[i], 5) for i in kept], "best": int(scores[0].argmax())})
    path = pathlib.Path(directory) / "processors.json"
    header = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text('{"versions":%s,"cases":[\n%s\n]}\n' % (json.dumps(header), lines))
    print(f"{len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
