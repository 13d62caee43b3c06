"""Compares the program with PEFT over random base models, whole and quantised, and random adapters of all PEFT's family.

    python3 tests/oracle/compare_adapters.py [--chorus PATH] [--seed 1] [--count 20] [--keep DIRECTORY]

Each seed makes a base model and six adapters; those that PEFT accepts are answered in one mixed batch. Every second base
is quantised; PEFT then uses the dequantised weights. Exits with 1 and prints how to repeat the seed when a token or a log
probability differs by more than rounding, or when an adapter is refused for a reason that is not in REFUSALS.
"""

import re

from comparison import difference, greedy, main, random_prompt, run
from random_adapters import RandomAdapter
from random_base import RandomBase, Refused

ADAPTERS = 6
FLAGS = [[], [], ["--isa", "scalar"], ["--isa", "avx2"], ["--backend", "reference"], ["--backend", "guarded"]]
# Expected refusals of adapters that add tokens without rows for all of them; PEFT's answer would be random.
REFUSALS = {
    r"has rows for \d+ tokens, the embedding for \d+": "tokens that the output head adds and the embedding has not",
    r"names token \d+, the model has \d+": "trained tokens after a gap",
    r"(embed_tokens|lm_head)\.\S+ has shape .* is of another model or rank": "on rows that it does not bring",
}


def wanted_tokens(adapter):
    indices = adapter.options.get("trainable_token_indices") or []
    named = indices if isinstance(indices, list) else [token for tokens in indices.values() for token in tokens]
    added = [token for token in adapter.tokens if token >= adapter.base.config["vocab_size"]]
    return [token for token in named if token in adapter.tokens] + added


def make(rng, generator, base, scratch, counts):
    adapters = []
    for index in range(ADAPTERS):
        try:
            adapters.append(RandomAdapter(rng, generator, base, scratch / f"adapter{index}"))
        except Exception:  # PEFT raises many types for options that it does not accept.
            counts["not taken by PEFT"] += 1
    return adapters


def served(chorus, engine, scratch, adapters, findings, counts):
    kept = []
    for adapter in adapters:
        try:
            run(chorus, engine, scratch, [adapter.directory], [(0, adapter.tokens[:1])])
            kept.append(adapter)
        except Refused as refusal:
            reasons = [why for pattern, why in REFUSALS.items() if re.search(pattern, str(refusal))]
            if adapter.is_whole or not reasons:
                findings.differs("refused", refusal, adapter, adapter.base)
            counts.update(f"refused: {reason}" for reason in reasons)
    return kept


def compare(chorus, rng, generator, scratch, findings, counts):
    base = RandomBase(rng, generator, scratch / "base", quantised=findings.seed % 2 == 1)
    engine = base.build(chorus, scratch)
    adapters = served(chorus, engine, scratch, make(rng, generator, base, scratch, counts), findings, counts)
    choices = [(-1, base.load(), range(base.config["vocab_size"]), [])]
    choices += [(i, a.model, a.tokens, wanted_tokens(a)) for i, a in enumerate(adapters)]
    rows = []
    for index, model, tokens, wanted in choices * 2:
        prompt = random_prompt(rng, tokens, wanted)
        rows.append((index, prompt, greedy(model, prompt)))
    rng.shuffle(rows)
    flags = rng.choice(FLAGS)
    answers = run(chorus, engine, scratch, [a.directory for a in adapters], [row[:2] for row in rows], flags)
    for (index, prompt, expected), tokens, log_probs in zip(rows, *answers):
        counts[f"rows on {'quantised' if 'quantise' in base.variant else 'whole'} {base.dtype_name}"] += 1
        if found := difference(base, expected, tokens, log_probs):
            findings.differs(found, adapters[index] if index >= 0 else "no adapter", base, f"run {flags} prompt {prompt}")
    for adapter in adapters:
        counts["adapters"] += 1
        counts.update(f"adapters with {feature}" for feature in adapter.features())


if __name__ == "__main__":
    main(__doc__, compare)
