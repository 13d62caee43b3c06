"""Requests that try to take more than their share of the computing thread."""

import itertools
import time

import wire
from stage import scenario

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
LONG = {"model": "base", "prompt": "hi", "ignore_eos": True, "temperature": 1}


def ask_choices(address, labelled):
    return [wire.ask(address, COMPLETIONS, body, label, timeout=60) for label, body in labelled]


@scenario("choices-refused", quick=True)
def choices_refused(stage):
    """More choices than --max_choices are refused, whichever field asks for them."""
    labelled = [(f"n {count}", {**LONG, "n": count, "max_tokens": 900}) for count in (17, 64, 128, 1024, 2**31 - 1, 2**63 - 1)]
    labelled += [(f"best_of {count}", {**LONG, "n": 1, "best_of": count, "max_tokens": 900}) for count in (17, 1024)]
    labelled += [(f"{prompts} prompts x {count}", {**LONG, "prompt": [f"p{n}" for n in range(prompts)], "n": count,
                                                   "max_tokens": 900})
                 for prompts, count in ((1025, 1), (8, 128), (5, 4), (2, 16))]
    answers = stage.attack(ask_choices, labelled)
    stage.check_answers(answers, {400, 429}, within=5)
    allowed = [("n 16", {**LONG, "n": 16, "max_tokens": 2})]
    # Several prompts with one choice each are allowed, because a client could also send them one by one.
    allowed += [(f"{count} prompts", {**LONG, "prompt": ["a"] * count, "max_tokens": 2}) for count in (17, 1024)]
    stage.check_answers(stage.attack(ask_choices, allowed), {200, 429})


def keep_streams(address, bodies, seconds, count):
    """Keeps `count` streams of one client open, which take the bodies in turn. Returns the number of each status."""
    end, statuses = time.monotonic() + seconds, {}
    opened = []
    requests = itertools.cycle([wire.request_bytes(COMPLETIONS, {**body, "stream": True}) for body in bodies])
    while time.monotonic() < end:
        while len(opened) < count:
            try:
                connection = wire.connect(address, timeout=2)
                connection.sendall(next(requests))
                opened.append([connection, True])
            except OSError:
                break
        for entry in list(opened):
            entry[0].settimeout(0.01)
            try:
                piece = entry[0].recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                piece = b""
            if entry[1] and piece.startswith(b"HTTP/1.1 "):
                statuses[int(piece[9:12])] = statuses.get(int(piece[9:12]), 0) + 1
                entry[1] = False
            if not piece or b"[DONE]" in piece or not piece.startswith((b"HTTP/1.1 200", b"data:")) and entry[1]:
                entry[0].close()
                opened.remove(entry)
        time.sleep(0.01)
    for connection, _ in opened:
        connection.close()
    return statuses


@scenario("choices-many", quick=True)
def choices_many(stage):
    """One client sends as many choices as are allowed in many requests at once, enough to fill whole batches."""
    for body, count in (({**LONG, "n": 16, "max_tokens": 900}, 1), ({**LONG, "n": 16, "max_tokens": 900}, 12),
                        ({**LONG, "n": 1, "max_tokens": 900}, 100), ({**LONG, "prompt": [7] * 900, "max_tokens": 1}, 30)):
        statuses = stage.attack(keep_streams, [body], 2.5, count)
        stage.note(f"{count} requests with {body.get('n', 1)} choices: {statuses}")
        bad = [status for status in statuses or {} if status not in (200, 400, 429, 503)]
        stage.check(not bad, f"statuses {bad}")
        time.sleep(0.3)


@scenario("choices-1024")
def choices_1024(stage):
    """One request for 1,024 choices, in case the server accepts it."""
    body = {**LONG, "prompt": [f"p{n}" for n in range(8)], "n": 128, "max_tokens": 900}
    statuses = stage.attack(keep_streams, [body], 6, 1)
    stage.note(str(statuses))


# --- rows that cost more than others ---------------------------------------------------------------------------------------

COPIES = [f"copy-{n}" for n in range(7)]


@scenario("compositions-many", quick=True)
def compositions_many(stage):
    """One client fills batches with compositions of many adapters, no two alike: each is read for its own row."""
    for name in COPIES:
        stage.server.put_adapter(name)
    for name in COPIES:
        stage.server.wait_served(name)
    bodies = [{**LONG, "max_tokens": 200, "adapters": [{"name": name, "weight": (1 + n) / 1000} for name in COPIES]}
              for n in range(500)]
    statuses = stage.attack(keep_streams, bodies, 6, 100)
    stage.note(str(statuses))
    stage.check(set(statuses or {}) <= {200, 429, 503}, "a status that is none of an overload")


@scenario("scored-prompts", quick=True)
def scored_prompts(stage):
    """One client keeps asking for the log probabilities of long prompts, which have a row of logits for each token."""
    bodies = [{**LONG, "prompt": [7 + n] * 400, "max_tokens": 1, "echo": True, "logprobs": 5} for n in range(50)]
    statuses = stage.attack(keep_streams, bodies, 6, 30)
    stage.note(str(statuses))
    stage.check(set(statuses or {}) <= {200, 429, 503}, "a status that is none of an overload")


# --- no_repeat_ngram_size -----------------------------------------------------------------------------------------------

CONTEXT = 20_000
LONG_CONTEXTS = ("--max_seq_len", "24576", "--kv_cache_max_tokens", "49152")


@scenario("ngram-rule", flags=LONG_CONTEXTS, neighbour=False)
def ngram_rule(stage):
    """The no_repeat_ngram_size rule over a long context adds only a fraction of a token's own cost to each token."""
    body = {"model": "base", "prompt": [7] * CONTEXT, "max_tokens": 20, "n": 16, "ignore_eos": True, "temperature": 1}
    rules = {"first": {}, "none": {}} | {f"{size}": {"no_repeat_ngram_size": size} for size in (3, CONTEXT // 2, CONTEXT - 2)}
    answers = stage.measure(ask_choices, [(label, body | rule) for label, rule in rules.items()], timeout=120)
    stage.check_answers(answers, {200}, within=60)
    if answers is None:
        return
    seconds = {answer.label: answer.seconds for answer in answers}
    stage.note(", ".join(f"{label}: {value:.2f} s" for label, value in seconds.items()))
    for label in list(rules)[2:]:
        stage.check(seconds[label] <= 1.6 * seconds["none"] + 0.3,
                    f"no_repeat_ngram_size {label}: {seconds[label]:.1f} s, without it {seconds['none']:.1f}")


# --- stop strings and other rules over the whole answer -------------------------------------------------------------------


@scenario("rules-of-many-words")
def rules_of_many_words(stage):
    """Stop texts, bad words and biases, as many and as long as fit into a body."""
    body = {**LONG, "max_tokens": 100, "temperature": 0}
    labelled = []
    for count, length in ((4, 100_000), (4, 1_900_000), (100, 10), (100, 20_000), (10_000, 5), (100_000, 20)):
        words = [f"{n}{'a' * length}" for n in range(count)]
        labelled += [(f"{count} stops of {length}", {**body, "stop": words}),
                     (f"{count} bad words of {length}", {**body, "bad_words": words})]
    labelled += [("biases", {**body, "logit_bias": {str(n): 1 for n in range(1500)}}),
                 ("stop ids", {**body, "stop_token_ids": list(range(6, 1500))}),
                 ("many stop ids", {**body, "stop_token_ids": [7] * 500_000})]
    stage.check_answers(stage.attack(ask_choices, labelled), {200, 400, 413, 429}, within=15)
