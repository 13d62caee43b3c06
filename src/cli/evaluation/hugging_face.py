"""Answers the prompts of `chorus summarize --test_hf` with transformers, and with adapters of PEFT.

Standard input: one JSON object, which src/cli/evaluation/transformers_summaries.cc writes. Standard output: one JSON
object per answer, the first one for the prompt that runs once before the clock does; or {"error": ...}.
"""

import contextlib
import json
import math
import os
import sys
import time

# Libraries may print to standard output; that goes to standard error.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def load(job):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["tokenizer_dir"], padding_side="left", truncation_side="left")
    torch.manual_seed(job["random_seed"])
    model = AutoModelForCausalLM.from_pretrained(
        job["model_dir"], device_map="auto" if job["device_map_auto"] else None).to(getattr(torch, job["dtype"]))
    if not job["device_map_auto"] and torch.cuda.is_available():
        model.cuda()
    return torch, tokenizer, with_adapters(job, model).eval()


def with_adapters(job, model):
    """The model with the adapters that are used; each has its index in --lora_dir as its name."""
    wrapped = None
    for uid in sorted({uid for uid in job["lora_task_uids"] if uid >= 0}):
        import peft
        how = dict(adapter_name=str(uid), autocast_adapter_dtype=False)
        if wrapped is None:
            wrapped = peft.PeftModel.from_pretrained(model, job["lora_dirs"][uid], **how)
        else:
            wrapped.load_adapter(job["lora_dirs"][uid], **how)
    return model if wrapped is None else wrapped


def task_uid(job, place):
    """The adapter of the article at a place in its batch, as the engine chooses it; -1: the base model."""
    uids = job["lora_task_uids"]
    return uids[min(place, len(uids) - 1)] if uids else -1


@contextlib.contextmanager
def adapter(model, uid):
    if uid >= 0:
        model.set_adapter(str(uid))
        yield
    elif hasattr(model, "peft_config"):
        with model.disable_adapter():
            yield
    else:
        yield


def prompt_tokens(job, tokenizer, prompt):
    if job["system"] is not None:
        messages = [{"role": "system", "content": job["system"]}, {"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(prompt, add_special_tokens=job["add_special_tokens"], truncation=True,
                            max_length=job["max_input_length"])


def perplexity(torch, model, tokens):
    """Of all tokens but the first, given those before them."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens], device=model.device)).logits[0, :-1].float()
    losses = -logits.log_softmax(-1).gather(-1, torch.tensor(tokens[1:], device=model.device)[:, None])
    return losses.mean().exp().item() if len(tokens) > 1 else 1.0


def generate(job, torch, tokenizer, model, rows):
    """The answers to rows of (article, tokens), which have the same adapter, and their seconds."""
    pad = next((t for t in (tokenizer.pad_token_id, job["end_id"]) if t is not None), 0)
    longest = max(len(tokens) for _, tokens in rows)
    inputs = torch.tensor([[pad] * (longest - len(tokens)) + tokens for _, tokens in rows], device=model.device)
    mask = torch.tensor([[0] * (longest - len(tokens)) + [1] * len(tokens) for _, tokens in rows], device=model.device)
    begin = time.monotonic()
    with torch.no_grad():
        outputs = model.generate(inputs, attention_mask=mask, max_new_tokens=job["output_len"], eos_token_id=job["end_id"],
                                 pad_token_id=pad, **job["sampling"])
    seconds = time.monotonic() - begin
    for (article, tokens), output in zip(rows, outputs[:, longest:].tolist()):
        if job["end_id"] in output:
            output = output[:output.index(job["end_id"]) + 1]
        answer = {"article": article, "text": tokenizer.decode(output, skip_special_tokens=True), "tokens": len(output),
                  "seconds": seconds / len(rows)}
        if job["eval_ppl"]:
            value = perplexity(torch, model, tokens + output)
            answer["perplexity"] = value if math.isfinite(value) else str(value)  # JSON has no NaN
        yield answer


def answer_batch(job, torch, tokenizer, model, prompts, first, timed):
    rows = {}
    for place, prompt in enumerate(prompts):
        if len(tokens := prompt_tokens(job, tokenizer, prompt)) > job["min_input_length"]:
            rows.setdefault(task_uid(job, place), []).append((first + place, tokens))
    answers_of_batch = []
    for uid, own in rows.items():
        with adapter(model, uid):
            answers_of_batch += generate(job, torch, tokenizer, model, own)
    for answer in sorted(answers_of_batch, key=lambda answer: answer["article"]):
        print(json.dumps(dict(answer, timed=timed)), file=answers, flush=True)
        yield answer


def main():
    job = json.load(sys.stdin)
    try:
        torch, tokenizer, model = load(job)
        prompts, size = job["prompts"], job["batch_size"]
        list(answer_batch(job, torch, tokenizer, model, prompts[:1], 0, False))
        batches = 0
        for first in range(0, len(prompts), size):
            if batches == job["max_ite"]:
                break
            batches += any(list(answer_batch(job, torch, tokenizer, model, prompts[first:first + size], first, True)))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)


main()
