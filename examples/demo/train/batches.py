"""Token batches with labels, shared by the two training scripts.

A module for the other scripts; it is not run by itself.
"""

import random

import torch

IGNORE = -100  # label of tokens that the loss ignores


def encode_chat(tokenizer, messages):
    """Token ids of a chat, and labels for the assistant's messages."""
    ids, labels = [], []
    for i, message in enumerate(messages):
        answer = message["role"] == "assistant"
        if answer:  # the opening of the turn is given and not generated
            whole = render(tokenizer, messages[:i], True)
            labels += [IGNORE] * (len(whole) - len(ids))
            ids = whole
        whole = render(tokenizer, messages[: i + 1], False)
        new = whole[len(ids):]
        labels += new if answer else [IGNORE] * len(new)
        ids = whole
    return ids, labels


def render(tokenizer, messages, generation_prompt):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation_prompt)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def batches(examples, size, pad, rng: random.Random):
    """Shuffled batches of examples (ids, labels) of similar length, as tensors."""
    order = list(range(len(examples)))
    rng.shuffle(order)
    chunk = size * 64
    groups = []
    for start in range(0, len(order), chunk):
        part = sorted(order[start : start + chunk], key=lambda i: len(examples[i][0]))
        part = [part[i : i + size] for i in range(0, len(part), size)]
        rng.shuffle(part)
        groups += part
    for group in groups:
        width = max(len(examples[i][0]) for i in group)
        ids = torch.full((len(group), width), pad)
        labels = torch.full((len(group), width), IGNORE)
        for row, i in enumerate(group):
            n = len(examples[i][0])
            ids[row, :n] = torch.tensor(examples[i][0])
            labels[row, :n] = torch.tensor(examples[i][1])
        yield ids, labels


def step(model, optimizer, scheduler, ids, labels):
    """One training step. Padding is on the right, where causal attention hides it."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    scheduler.step()
    return loss.item()


def schedule(optimizer, steps, warmup):
    """Linear warm-up, then linear decay to 0."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warmup, max(0.0, (steps - i) / max(1, steps - warmup))))
