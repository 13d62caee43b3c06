"""Traces: what they are, how they are drawn from a seed, and how a failing one is made smaller.

A trace is a JSON object:
    why      what it is meant to show
    server   flags of `chorus serve`
    start    the adapters at the start: name -> label of a content (contents.py)
    settle   whether all names are asked once more when the last change must have been noticed
    events   in the order of their times; each has "at" in seconds and "do":
        ask     "body": a request of /v1/completions or, with messages, of /v1/chat/completions. "from": the client's address.
                "leave_after": the client disconnects after so many seconds.
                "count", "gap": so many of them, so many seconds apart. With "models" these take turns as the body's model.
        put     "name", "content": serves the content by this name, which may exist already
        remove  "name"
        upload  "name", "content": the same by a request; the content has no text of its own, and put never has this name
        rollback, pin, unpin  "name", which may be absent: requests to the server
"""

import copy
import json
import random
import time

from contents import CONTENTS, LARGE, MAX_RANK, UPLOADED, composable

NAMES = ["ada", "bob", "cleo", "dan", "eve", "fay"]
WORDS = ["two", "red", "dogs", "seven", "cats", "house", "and", "five", "the", "sum", "of", "nine", "blue", "birds", "a"]
UPLOADED_NAMES = ["gil", "hal"]
CLIENTS = [f"127.0.0.{i}" for i in range(1, 5)]
SHRINK_TRIES = 2  # a failure may depend on timing, so a smaller trace counts as good only after so many plays


def read_trace(path):
    trace = json.loads(path.read_text())
    unknown = set(trace) - {"why", "server", "start", "settle", "events"}
    if unknown:
        raise ValueError(f"{path}: unknown keys {sorted(unknown)}")
    trace["events"] = [one for event in trace["events"] for one in expanded(event)]
    trace["events"].sort(key=lambda event: event["at"])
    return trace


def expanded(event):
    rest = {key: value for key, value in event.items() if key not in ("count", "gap", "models")}
    for i in range(event.get("count", 1)):
        one = copy.deepcopy(rest)
        one["at"] = round(event["at"] + i * event.get("gap", 0), 4)
        if "models" in event:
            one["body"]["model"] = event["models"][i % len(event["models"])]
        yield one


def text_of(trace):
    events = ",\n  ".join(json.dumps(event) for event in trace["events"])
    head = {key: value for key, value in trace.items() if key != "events"}
    return json.dumps(head, indent=1)[:-2] + f',\n "events": [\n  {events}\n ]\n}}\n'


# --- drawing --------------------------------------------------------------------------------------------------------


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def draw_server(rng):
    held = rng.choice([2, 2, 3, 4, 8])
    flags = {"max_batch_size": rng.choice([2, 4, 8, 16, 64]), "kv_cache_max_tokens": rng.choice([1536, 2048, 4096, 32768]),
             "max_num_tokens": rng.choice([64, 256, 2048]), "max_cpu_loras": held,
             "max_gpu_loras": rng.randint(2, held), "kv_reuse_scope": rng.choice(["all", "adapter", "client"]),
             "adapter_overload": rng.choice(["reject", "wait"]),
             "threads": rng.choice([1, 2])}
    return flags


def draw_sampling(rng, body):
    if rng.random() < 0.4:
        body |= {"temperature": rng.choice([0.3, 0.8, 1.0, 1.7]), "seed": rng.randrange(1000)}
        for field, values in (("top_p", [0.5, 0.9]), ("top_k", [1, 5, 40]), ("min_p", [0.05]), ("presence_penalty", [0.7]),
                              ("frequency_penalty", [0.3]), ("repetition_penalty", [1.2])):
            if rng.random() < 0.2:
                body[field] = rng.choice(values)
    else:
        body["temperature"] = 0
    if rng.random() < 0.1:
        body["logit_bias"] = {str(rng.randrange(10, 1500)): rng.choice([-100, 5, 20])}
    if rng.random() < 0.15:
        body["stop"] = rng.sample([" dogs", "e", " and", "7", "\n"], rng.randint(1, 2))
    if rng.random() < 0.5:
        body["ignore_eos"] = True
    if rng.random() < 0.1:
        body["min_tokens"] = 4


def draw_body(rng, prefixes):
    prompt = rng.choice([words(rng, 1, 12), rng.choice(prefixes) + " " + words(rng, 1, 5)])
    body = {"max_tokens": rng.choice([1, 3, 8, 16, 24, 40])}
    draw_sampling(rng, body)
    choices = rng.choice([1, 1, 1, 1, 2, 4])
    if choices > 1:
        body["n"] = choices
    if rng.random() < 0.5:
        body["messages"] = [{"role": "user", "content": prompt}]
        if rng.random() < 0.4:
            body |= {"logprobs": True, "top_logprobs": rng.choice([0, 3])}
    else:
        body["prompt"] = prompt
        if choices == 1 and rng.random() < 0.15:
            body["prompt"] = rng.choice([[prompt, words(rng, 1, 6)], [rng.randrange(10, 1500) for _ in range(rng.randint(1, 40))]])
        if rng.random() < 0.4:
            body["logprobs"] = rng.choice([0, 2])
        if rng.random() < 0.2:
            body["echo"] = True
    if rng.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    elif "prompt" in body and rng.random() < 0.2 and body["temperature"] > 0:
        body["best_of"] = choices + rng.randint(1, 3)
    if rng.random() < 0.1:
        body["cache_salt"] = rng.choice(["salt", "pepper"])
    return body


def draw_model(rng, body, names, held, composed):
    """Names a model, which may be absent, or composes several. held: name -> label that it has by then. composed: the names of
    earlier compositions; a new one is added."""
    usable = [name for name, label in held.items() if label and composable(label)]
    if usable and rng.random() < 0.15:
        # Often the adapters of an earlier composition, with other weights. Two of the largest adapters fit in the smallest cache
        # that is drawn.
        again = [names for names in composed if set(names) <= set(usable)]
        chosen = rng.choice(again) if again and rng.random() < 0.6 else rng.sample(usable, min(len(usable), rng.randint(1, 2)))
        composed.append(chosen)
        body["model"] = "base"
        body["adapters"] = [{"name": name, "weight": rng.choice([1, 0.5, 0.25, -0.5])} for name in chosen]
    else:
        body["model"] = rng.choice(["base", *names, *names])


def draw_administration(rng, names, bodies, end):
    """Uploads, roll backs and pins, and requests for the uploaded names, in half of the traces. end: of the trace. Every pin
    ends with the trace, because a small cache without the pinned adapter may never have room for a composition.
    """
    if rng.random() < 0.5:
        return []
    events = []
    for _ in range(rng.randint(4, 12)):
        at = round(rng.uniform(0, end), 4)
        name = rng.choice(UPLOADED_NAMES)
        what = rng.choice(["upload", "upload", "upload", "rollback", "pin", "unpin"])
        event = {"at": at, "do": what, "name": rng.choice([*UPLOADED_NAMES, *names]) if what in ("pin", "unpin") else name}
        if what == "upload":
            event["content"] = rng.choice(UPLOADED)
        events.append(event)
        if what == "pin":
            events.append({"at": end, "do": "unpin", "name": event["name"]})
        for _ in range(rng.choice([0, 1, 4])):
            body = copy.deepcopy(rng.choice(bodies))
            body["model"] = name
            events.append({"at": round(at + rng.choice([0, 0.01, 0.2]), 4), "do": "ask", "from": rng.choice(CLIENTS),
                           "body": body})
    return events


def draw(seed):
    """The trace of a seed, which is any string. It takes a few seconds to play."""
    rng = random.Random(seed)
    names = NAMES[:rng.randint(2, len(NAMES))]
    labels = rng.choice([list(CONTENTS), list(CONTENTS), LARGE])
    start = {name: rng.choice(labels) for name in names if rng.random() < 0.8}
    held = dict(start)
    prefixes = [words(rng, 20, 100) for _ in range(3)]  # a block of the prefix cache holds 64 tokens
    bodies = [draw_body(rng, prefixes) for _ in range(rng.randint(6, 24))]
    events, at, composed = [], 0.0, []
    for _ in range(rng.randint(20, 60)):
        at = round(at + rng.choice([0, 0.002, 0.02, 0.1, 0.3]), 4)
        kind = rng.random()
        if kind < 0.12:
            name = rng.choice(names)
            # Never the content that the name has, and rather one that a name had before: a cache may still hold its data.
            old = [label for label in set(start.values()) if label != held.get(name)]
            held[name] = rng.choice([*sorted(old), *(label for label in labels if label != held.get(name))])
            events.append({"at": at, "do": "put", "name": name, "content": held[name]})
        elif kind < 0.15:
            name = rng.choice(names)
            if held.get(name):
                held[name] = None
                events.append({"at": at, "do": "remove", "name": name})
        else:
            # A burst arrives in one step; its requests share the body or at least the beginning of the prompt.
            body, source = rng.choice(bodies), rng.choice(CLIENTS)
            for _ in range(rng.choice([1, 1, 1, 4, 8])):
                one = copy.deepcopy(body if rng.random() < 0.6 else rng.choice(bodies))
                draw_model(rng, one, names, held, composed)
                event = {"at": at, "do": "ask", "from": source if rng.random() < 0.5 else rng.choice(CLIENTS), "body": one}
                if rng.random() < 0.08:
                    event["leave_after"] = rng.choice([0.001, 0.01, 0.05, 0.2])
                events.append(event)
    events += draw_administration(random.Random(f"{seed} administration"), names, bodies, at)
    events.sort(key=lambda event: event["at"])
    return {"why": f"drawn from seed {seed}", "server": draw_server(rng), "start": start, "settle": rng.random() < 0.3,
            "events": events}


# --- shrinking ------------------------------------------------------------------------------------------------------


def shrink(trace, fails, seconds):
    """Drops events as long as fails(trace) is true for what is left, for at most so many seconds."""
    end = time.monotonic() + seconds
    size = max(len(trace["events"]) // 2, 1)
    while True:
        begin = 0
        while begin < len(trace["events"]):
            smaller = {**trace, "events": trace["events"][:begin] + trace["events"][begin + size:]}
            for _ in range(SHRINK_TRIES):
                if time.monotonic() > end:
                    return trace
                if fails(smaller):
                    trace = smaller
                    break
            else:
                begin += size
        if size == 1:
            return trace
        size //= 2


def server_arguments(trace):
    """The engine is the same for every trace: the flags that change it are fixed."""
    flags = {"dtype": "float32", "max_lora_rank": MAX_RANK, "lora_refresh_interval": 1, "lora_refresh": "sync",
             "log_level": "warning"}
    return [str(part) for name, value in {**flags, **trace["server"]}.items() for part in ("--" + name, value)]
