"""Makes tests/goldens/composition: PEFT's answers with several adapters of the golden `plain` at once.

    python3 tests/oracle/composition_goldens.py tests/goldens

The adapter of each row is add_weighted_adapter(combination_type="cat") of the named ones, in float32 on the CPU.
case.json has terms, prompt and greedy tokens; expected.safetensors has the logits that chose the tokens.
"""
import json
import pathlib
import sys

import peft
import safetensors.torch
import torch
import transformers

MODEL = "llama/plain"
NEW_TOKENS = 6
CANDIDATES = 24  # random prompts; the one with the widest margin between its best two tokens is kept
ROWS = [
    ([("qv_r3_f32", 1.0), ("all_r8_bf16", 0.5)], 21),
    ([("pattern_f32", -0.75), ("mlp_rslora_r16_f16", 1.25), ("qv_r3_f32", 0.3)], 70),
    ([("all_r8_bf16", 0.6)], 9),
    ([("all_r8_bf16", 0.4), ("pattern_f32", 0.0), ("mlp_rslora_r16_f16", -0.5), ("qv_r3_f32", 2.0)], 33),
]


def greedy(model, prompts):
    """For each prompt: its tokens, the logits that chose them, and their smallest margin."""
    ids, rows = torch.tensor(prompts), []
    for _ in range(NEW_TOKENS):
        rows.append(model(ids).logits[:, -1].float())
        ids = torch.cat([ids, rows[-1].argmax(-1, keepdim=True)], 1)
    logits = torch.stack(rows, 1)
    best = logits.topk(2).values
    margins = (best[..., 0] - best[..., 1]).amin(1)
    return [(ids[i, len(p):].tolist(), logits[i], float(margins[i])) for i, p in enumerate(prompts)]


@torch.no_grad()
def main(goldens):
    directory = goldens / MODEL
    base = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    model = None
    for name in sorted({name for terms, _ in ROWS for name, _ in terms}):
        path = directory / "adapters" / name
        if model is None:
            model = peft.PeftModel.from_pretrained(base, path, adapter_name=name)
        else:
            model.load_adapter(path, adapter_name=name)
    model.eval()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(4711)
    rows, tensors = [], {}
    for number, (terms, length) in enumerate(ROWS):
        composed = f"row{number}"
        model.add_weighted_adapter([name for name, _ in terms], [weight for _, weight in terms], composed,
                                   combination_type="cat")
        model.set_adapter(composed)
        prompts = torch.randint(0, base.config.vocab_size, (CANDIDATES, length), generator=generator).tolist()
        prompt, (tokens, logits, margin) = max(zip(prompts, greedy(model, prompts)), key=lambda found: found[1][2])
        rows.append({"terms": [{"adapter": name, "weight": weight} for name, weight in terms], "prompt": prompt,
                     "tokens": tokens, "min_margin": margin})
        tensors[str(number)] = logits.contiguous()
        print(composed, "margin", margin)
    out = goldens / "composition"
    out.mkdir(exist_ok=True)
    versions = {"peft": peft.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    case = {"model": MODEL, "versions": versions, "rows": rows}
    (out / "case.json").write_text(json.dumps(case) + "\n")
    safetensors.torch.save_file(tensors, out / "expected.safetensors")


main(pathlib.Path(sys.argv[1]))
