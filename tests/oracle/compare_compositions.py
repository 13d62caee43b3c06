"""Compares answers of several random adapters at once with PEFT's add_weighted_adapter(combination_type="cat").

    python3 tests/oracle/compare_compositions.py [--chorus PATH] [--seed 1] [--count 20] [--keep DIRECTORY]

A seed is a base model, every second one quantised, a server with five adapters, and requests with the field "adapters" that
come at once. Where the first adapter is rsLoRA, PEFT multiplies the sum by the root of the ranks' sum, which is left out.
"""

import concurrent.futures
import json
import pathlib
import sys

import peft
import tokenizers
import torch

import llama_goldens as llama
from comparison import NEW_TOKENS, difference, greedy, main, random_prompt
from random_adapters import RandomAdapter
from random_base import RandomBase

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from server_process import ServerProcess  # noqa: E402

ADAPTERS, REQUESTS = 5, 12
WEIGHTS = [1.0, -1.0, 0.0, 0.5, 0.25, -0.3, 2.0, 7.5]


def composable(rng, base):
    """Returns (arguments of LoraConfig, number of added tokens, save_embedding_layers)."""
    names = rng.sample(llama.ALL, rng.randrange(1, 8))
    names += ["embed_tokens"] * (rng.random() < 0.25) + ["lm_head"] * (rng.random() < 0.25)
    options = {"r": rng.choice([1, 2, 3, 5, 8, 16]), "lora_alpha": rng.choice([1, 3, 6, 8, 0.5, -4]),
               "task_type": "CAUSAL_LM", "target_modules": names, "use_rslora": rng.random() < 0.4}
    if rng.random() < 0.4:
        options["rank_pattern"] = {rng.choice(llama.ALL): rng.choice([1, 4, 9, 20])}
    if rng.random() < 0.4:
        options["alpha_pattern"] = {rng.choice(llama.ALL): rng.choice([1, 4.5, 9])}
    return options, 0, False


def write_tokenizer(directory, vocab):
    """Writes a tokenizer in which token i is the word ti."""
    words = tokenizers.Tokenizer(tokenizers.models.BPE({f"t{i}": i for i in range(vocab)}, [], unk_token="t0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


@torch.no_grad()
def composed(base, terms):
    """PEFT's model for a composition [(adapter, weight)]."""
    names = [adapter.directory.name for adapter, _ in terms]
    model = peft.PeftModel.from_pretrained(base.load(), terms[0][0].directory, adapter_name=names[0])
    for adapter, _ in terms[1:]:
        model.load_adapter(adapter.directory, adapter_name=adapter.directory.name)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.copy_(parameter.to(base.dtype))
    layers = [module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer)]
    if len(terms) == 1:
        model.set_adapter(names[0])
        for layer in layers:
            layer.scaling[names[0]] *= terms[0][1]
    else:
        model.add_weighted_adapter(names, [weight for _, weight in terms], "composed", combination_type="cat")
        model.set_adapter("composed")
        if terms[0][0].options["use_rslora"]:
            for layer in layers:
                layer.scaling["composed"] = 1.0
    return model.eval()


def ask(server, terms, prompt):
    """Returns (tokens, log probabilities)."""
    body = {"model": "base", "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "logprobs": 1,
            "ignore_eos": True, "adapters": [{"name": a.directory.name, "weight": weight} for a, weight in terms]}
    status, _, answer = server.request("POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"{status}: {answer}")
    found = answer["choices"][0]["logprobs"]
    return [int(word.strip().removeprefix("t")) for word in found["tokens"]], found["token_logprobs"]


def compare(chorus, rng, generator, scratch, findings, counts):
    base = RandomBase(rng, generator, scratch / "base", quantised=findings.seed % 2 == 1)
    engine = base.build(chorus, scratch)
    write_tokenizer(scratch / "base", base.config["vocab_size"])
    adapters = [RandomAdapter(rng, generator, base, scratch / "adapters" / f"a{i}", composable) for i in range(ADAPTERS)]
    requests = []
    for _ in range(REQUESTS):
        terms = [(adapter, rng.choice(WEIGHTS)) for adapter in rng.sample(adapters, rng.randrange(1, ADAPTERS))]
        prompt = random_prompt(rng, adapters[0].tokens)
        requests.append((terms, prompt, greedy(composed(base, terms), prompt)))
    flags = ["--engine_dir", engine, "--tokenizer_dir", scratch / "base", "--lora_dir", scratch / "adapters",
             "--model_name", "base"]
    with ServerProcess(chorus, flags) as server, concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda request: ask(server, *request[:2]), requests))
    for (terms, prompt, expected), answer in zip(requests, answers):
        counts[f"of {len(terms)} adapters on {'quantised' if 'quantise' in base.variant else 'whole'}"] += 1
        if found := difference(base, expected, *answer):
            findings.differs(found, *[f"{weight} x {adapter}" for adapter, weight in terms], base, f"prompt {prompt}")


if __name__ == "__main__":
    main(__doc__, compare)
