"""Requests with values of every wrong type always get a response, and never an internal error."""

import json
import random

import wire
from stage import scenario

MODELS = ["base", "german", "json", "roman", "shout", "sum", "nobody", ""]
VALUES = [None, True, False, 0, 1, -1, 2, 5, 20, 128, 129, 1024, 2**31 - 1, 2**31, 2**63 - 1, -2**63, 2**64, 1.0, 0.5, -0.5,
          1e308, 5e-324, 1e-9, 100, -100, "", "a", "\u00e9", "\u0000", "\U0001f600", "x" * 1000, [], [""], ["a"], [1], [[1]],
          [[]], {}, {"a": 1}, [None], {"type": "text", "text": "x"}, "base", "german"]
FIELDS = """model prompt messages max_tokens max_completion_tokens n best_of stream stream_options stop stop_token_ids
    temperature top_p top_k min_p seed presence_penalty frequency_penalty repetition_penalty no_repeat_ngram_size min_tokens
    logit_bias bad_words logprobs top_logprobs echo suffix ignore_eos include_stop_str_in_output skip_special_tokens adapters
    tools tool_choice documents chat_template chat_template_kwargs add_generation_prompt continue_final_message
    add_special_tokens user response_format guided_json cache_salt priority use_beam_search truncate_prompt_tokens
    lora_request nvext repeat_penalty metadata input instructions max_output_tokens text previous_response_id background
    system stop_sequences thinking tokens return_token_strs""".split()
PATHS = {"/v1/completions": ["prompt"], "/v1/chat/completions": ["messages"], "/v1/responses": ["input"],
         "/v1/messages": ["messages"], "/v1/messages/count_tokens": ["messages"], "/tokenize": ["prompt", "messages"],
         "/detokenize": ["tokens"]}


def valid_body(rng, path):
    field = rng.choice(PATHS[path])
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    content = rng.choice(["hi", "", [{"type": "text", "text": "q"}], "seven"])
    conversation = [{"role": rng.choice(["system", "user"]), "content": content}]
    values = {"messages": conversation, "input": rng.choice(["hi", conversation]), "tokens": [5, 6, 7],
              "prompt": rng.choice(["hi", ["a", "b"], [1, 2, 3], [[1], [5, 6]], "", ["x"] * 5])}
    return {"model": rng.choice(MODELS[:6]), limit: rng.choice([1, 2, 5]), field: values[field]}


def mutate(rng, value):
    if isinstance(value, dict) and value and rng.random() < 0.7:
        value, name = dict(value), rng.choice(list(value))
        if rng.random() < 0.15:
            value.pop(name)
        else:
            value[name] = mutate(rng, value[name])
        return value
    if isinstance(value, list) and value and rng.random() < 0.7:
        value, at = list(value), rng.randrange(len(value))
        value[at] = mutate(rng, value[at])
        return value
    return rng.choice(VALUES)


def fuzz_requests(address, seed, count):
    rng, answers = random.Random(seed), []
    for number in range(count):
        path = rng.choice(list(PATHS))
        body = valid_body(rng, path)
        for _ in range(rng.choice([0, 1, 1, 2])):
            if rng.random() < 0.5:
                body[rng.choice(FIELDS)] = rng.choice(VALUES)
            else:
                body = mutate(rng, body)
            if not isinstance(body, dict):
                body = {"model": body}
        text = json.dumps(body).encode()
        if rng.random() < 0.15:
            damaged = bytearray(text)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            text = bytes(damaged)
        if rng.random() < 0.05:
            wire.send_and_leave(address, wire.request_bytes(path, text), stay=rng.random() * 0.02)
            continue
        answers.append(wire.ask(address, path, text, f"{seed}.{number} {text[:120]!r}", timeout=30))
    return answers


@scenario("requests-fuzz", quick=True)
def requests_fuzz(stage):
    for answers in stage.attack_all([(fuzz_requests, seed, 250) for seed in (1, 2)]):
        # A stream that fails late has status 200; its error is an event.
        stage.check_answers(answers, {200, 400, 403, 404, 429}, within=10)
        for answer in answers or []:
            stage.check("NaN" not in answer.body and "Infinity" not in answer.body, f"{answer.label}: not a number")
