"""Requests that try to take more than their share of the computing thread."""

import http.client
import itertools
import json
import threading
import time

import wire
from hostile_server import time_scale
from stage import scenario
from tenant_tokenizers import base_tokenizer, with_tokenizer

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
LONG = {"model": "base", "prompt": "hi", "ignore_eos": True, "temperature": 1}


def run_on_threads(count, function):
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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


LONG_CONTEXTS = ("--max_seq_len", "24576", "--kv_cache_max_tokens", "49152")


@scenario("long-contexts", flags=LONG_CONTEXTS, quick=True)
def long_contexts(stage):
    """One client fills the batch with choices that share a long prompt: attention over it is most of a step's time."""
    body = {**LONG, "prompt": [7] * 8000, "n": 16, "max_tokens": 200}
    statuses = stage.attack(keep_streams, [body], 9, 4)
    stage.note(str(statuses))
    stage.check(set(statuses or {}) <= {200, 429, 503}, "a status that is none of an overload")


# --- large answers of few tokens --------------------------------------------------------------------------------------------

GAP_S = 0.15  # gaps that are longer count as stalls


def token_gaps(address, seconds):
    """Streams one long answer after another. Returns the seconds between the pieces of text, one list for all."""
    body = json.dumps({**LONG, "max_tokens": 900, "stream": True})
    gaps, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(*address, timeout=20, source_address=("127.0.0.9", 0))
        connection.request("POST", COMPLETIONS, body, {"Content-Type": "application/json"})
        latest = None
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                now = time.monotonic()
                if latest is not None:
                    gaps.append(now - latest)
                latest = now
        connection.close()
    return gaps


token_gaps.measures = True


def read_echoes(address, body, seconds, count):
    """Sends the request again and again on `count` connections at a time. Returns the number of bytes that were read."""
    data, end, read = wire.request_bytes(COMPLETIONS, body), time.monotonic() + seconds, []

    def run():
        while time.monotonic() < end:
            with wire.connect(address) as connection:
                connection.sendall(data)
                tail = b""
                while piece := connection.recv(1 << 20):
                    read.append(len(piece))
                    tail = (tail + piece)[-64:]
                    if b"[DONE]" in tail or tail.endswith(b"}}"):
                        break
    run_on_threads(count, run)
    return sum(read)


@scenario("echoes-large", quick=True)
def echoes_large(stage):
    """One client asks for echoes of megabytes, which are few tokens: a token of its adapter takes the spaces after it."""
    def let_pad_take_spaces(folder):
        with_tokenizer(base_tokenizer())(folder)
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        for token in config["added_tokens_decoder"].values():
            token["rstrip"] = token["content"] == "<|pad|>"
        path.write_text(json.dumps(config), encoding="utf-8")
    stage.server.put_adapter("spaces", let_pad_take_spaces)
    stage.check(stage.server.wait_served("spaces"), "the adapter is not served")
    body = {**LONG, "model": "spaces", "prompt": "<|pad|>" + " " * 1_700_000, "max_tokens": 1, "echo": True, "n": 16,
            "stream": True}
    read, gaps = stage.attack_all([(read_echoes, body, 3, 2), (token_gaps, 3)])
    late = sum(gap for gap in gaps or [] if gap > GAP_S * time_scale())
    stage.note(f"{(read or 0) >> 20} MiB; {len(gaps or [])} gaps between tokens, the longest {max(gaps or [0]) * 1000:.0f} ms")
    stage.check_time((read or 0) >> 20, "no echo was read")
    stage.check_time(late <= 0.4 * time_scale(), f"no tokens came for {late:.1f} s in all")
    stage.server.remove_adapter("spaces")


# --- log probabilities of long tokens ------------------------------------------------------------------------------------


def with_long_tokens(size, growth):
    """A tokenizer whose tokens have `size` bytes, each of which the decoder replaces by `growth` control characters."""
    tokenizer = base_tokenizer()
    kept = {token["content"] for token in tokenizer["added_tokens"]} | {piece for piece in tokenizer["model"]["vocab"] if len(piece) == 1}
    tokenizer["model"]["vocab"] = {piece if piece in kept else "Q" * size + str(number): number
                                   for piece, number in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["merges"] = []
    tokenizer["decoder"] = {"type": "Replace", "pattern": {"String": "Q"}, "content": "\x01" * growth}
    return tokenizer


def stream_log_probs(address, source, model, seconds, count):
    """Asks for the log probabilities of 21 long tokens at each position, on `count` connections. Returns the statuses."""
    end, statuses = time.monotonic() + seconds, set()
    likely = {str(token): 100 for token in range(1400, 1421)}
    body = {"model": model, "messages": [{"role": "user", "content": "a"}], "max_tokens": 20, "logit_bias": likely,
            "ignore_eos": True, "temperature": 0, "logprobs": True, "top_logprobs": 20, "stream": True}

    def run():
        while time.monotonic() < end:
            statuses.add(wire.ask(address, CHAT, body, source=source).status)
    run_on_threads(count, run)
    return statuses


@scenario("log-probs-of-long-tokens")
def log_probs_of_long_tokens(stage):
    """Two clients ask for log probabilities with an adapter whose decoder lengthens long tokens."""
    for size, growth in ((1000, 4), (4000, 34)):
        name = f"long-{size}"
        stage.server.put_adapter(name, with_tokenizer(with_long_tokens(size, growth)))
        served = stage.server.wait_served(name, 60 if size <= 1024 else 3)
        statuses = stage.attack_all([(stream_log_probs, f"127.0.0.{last}", name, 4, 4) for last in (21, 22)])
        stage.note(f"tokens of {size} bytes, {growth} times as long decoded: served {served}, {statuses}")
        stage.check(all(one and one <= {200, 400, 404, 429, 503} for one in statuses), f"statuses {statuses}")
        stage.check(served or size > 1024, "tokens of the allowed length are not served")
        stage.server.remove_adapter(name)


# --- answers of many models -----------------------------------------------------------------------------------------------

LISTED = 5000


def read_lists(address, source, seconds, count):
    """Asks for the list of all models again and again on `count` connections at a time. Returns the number of answers."""
    end, answers = time.monotonic() + seconds, []

    def run():
        while time.monotonic() < end:
            answers.append(wire.ask(address, "/v1/models", method="GET", source=source).status)
    run_on_threads(count, run)
    return len(answers)


@scenario("lists-of-models", flags=("--max_cpu_loras", "8"))
def lists_of_models(stage):
    """Two clients ask for the list of thousands of adapters, whose requests are as short as any."""
    for number in range(LISTED):
        stage.server.put_adapter(f"listed-{number}")
    stage.check_time(stage.server.wait(lambda: len(stage.server.served()) > LISTED, 60), "the adapters are not served")
    counts = stage.attack_all([(read_lists, f"127.0.0.{last}", 4, 16) for last in (21, 22)])
    stage.note(f"{counts} lists")
    stage.check_time(all(counts), "a client got no list")


# --- no_repeat_ngram_size -----------------------------------------------------------------------------------------------

CONTEXT = 20_000


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
        stage.check_time(seconds[label] <= 1.6 * seconds["none"] + 0.3,
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
