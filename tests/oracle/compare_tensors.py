"""Compares adapters as tensors with PEFT: lora-convert's, and those of a directory that dora-normalize has made.

    python3 tests/oracle/compare_tensors.py [--chorus PATH] [--seed 1] [--count 20] [--keep DIRECTORY]

A seed is a base model, every second one quantised, and three random adapters of linears: each as PEFT saves it, normalised
where it is DoRA, and converted to tensors from there, all in one mixed batch. Bytes of the tensors are compared by
lora_tensors.py --program.
"""

from comparison import difference, greedy, main, random_prompt, run
from random_adapters import RandomAdapter, linears_only
from random_base import RandomBase, call

ADAPTERS = 3
TRIES = 30  # PEFT accepts one of them


def forms(chorus, base, adapter, counts):
    """Writes the adapter in all its forms and returns their directories."""
    source = adapter.directory
    directories = [source]
    if adapter.options.get("use_dora"):
        source = source.with_name(source.name + "_normalised")
        call(chorus, "dora-normalize", "-i", adapter.directory, "-b", base.path, "-o", source)
        directories.append(source)
        counts["normalised"] += 1
    tensors = source.with_name(source.name + "_tensors")
    call(chorus, "lora-convert", "-i", source, "-o", tensors, "--storage-type", "float32")
    return [*directories, tensors]


def compare(chorus, rng, generator, scratch, findings, counts):
    base = RandomBase(rng, generator, scratch / "base", quantised=findings.seed % 2 == 1)
    engine = base.build(chorus, scratch)
    directories, rows = [], []
    for index in range(ADAPTERS):
        for attempt in range(TRIES):
            try:
                adapter = RandomAdapter(rng, generator, base, scratch / f"adapter{index}_{attempt}", linears_only)
                break
            except Exception:  # PEFT raises many types for options that it does not accept.
                counts["not taken by PEFT"] += 1
        else:
            continue
        counts["adapters"] += 1
        prompt = random_prompt(rng, adapter.tokens)
        expected = greedy(adapter.model, prompt)
        for directory in forms(chorus, base, adapter, counts):
            rows.append((len(directories), prompt, expected, adapter))
            directories.append(directory)
    rng.shuffle(rows)
    answers = run(chorus, engine, scratch, directories, [row[:2] for row in rows])
    for (index, prompt, expected, adapter), tokens, log_probs in zip(rows, *answers):
        counts["rows"] += 1
        if found := difference(base, expected, tokens, log_probs):
            findings.differs(found, f"as {directories[index].name}", adapter, base, f"prompt {prompt}")


if __name__ == "__main__":
    main(__doc__, compare)
