"""Expensive bodies: deep and wide JSON, large prompts, bodies held open on many connections, responses that nobody
reads.
"""

import random
import time

import wire
from stage import scenario

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MIB = 1 << 20
# A body may exceed the limit of the server or of its client, either for good or at the moment.
REFUSED = {400, 413, 429, 503}
# Addresses of different clients of the same machine: each has its own budget, and all share the server's.
SOURCES = ["127.0.0.1", "127.0.0.3", "127.0.0.4", "127.0.0.5"]


def ask_bodies(address, labelled, source=wire.ATTACKER):
    answers = []
    for label, path, make in labelled:
        body = make if isinstance(make, (dict, str, bytes)) else wide_body(*make)
        answers.append(wire.ask(address, path, body, label, timeout=40, source=source))
    return answers


def wide_body(kind, count):
    """Called in the attacker's process, because building a body of megabytes is faster than sending it between
    processes.
    """
    head = '{"model":"base","prompt":"a","max_tokens":1,'
    if kind == "members":
        return head + '"x":{' + ",".join(f'"k{n}":1' for n in range(count)) + "}}"
    if kind == "own members":
        return head + ",".join(f'"k{n}":1' for n in range(count)) + "}"
    if kind == "same member":
        return head + ",".join('"k":1' for _ in range(count)) + "}"
    if kind == "values":
        return head + '"x":[' + ",".join("1" for _ in range(count)) + "]}"
    if kind == "lists":
        return head + '"x":[' + ",".join("[]" for _ in range(count)) + "]}"
    if kind == "objects":
        return head + '"x":[' + ",".join('{"a":{}}' for _ in range(count)) + "]}"
    if kind == "ids":
        return '{"model":"base","max_tokens":1,"prompt":[' + ",".join("7" for _ in range(count)) + "]}"
    if kind == "prompts":
        return '{"model":"base","max_tokens":1,"prompt":[' + ",".join('"a"' for _ in range(count)) + "]}"
    if kind == "stops":
        return head + '"stop":[' + ",".join(f'"s{n}"' for n in range(count)) + "]}"
    if kind == "long stop":
        return head + '"stop":"' + "a" * count + '"}'
    if kind == "bias":
        return head + '"logit_bias":{' + ",".join(f'"{n}":1' for n in range(count)) + "}}"
    if kind == "bad words":
        return head + '"bad_words":[' + ",".join(f'"w{n}"' for n in range(count)) + "]}"
    if kind == "adapters":
        return head + '"adapters":[' + ",".join('{"name":"shout","weight":1}' for _ in range(count)) + "]}"
    if kind == "messages":
        return ('{"model":"base","max_tokens":1,"messages":['
                + ",".join('{"role":"user","content":"x"}' for _ in range(count)) + "]}")
    if kind == "parts":
        return ('{"model":"base","max_tokens":1,"messages":[{"role":"user","content":['
                + ",".join('{"type":"text","text":"x"}' for _ in range(count)) + "]}]}")
    if kind == "tools":
        return ('{"model":"base","max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":['
                + ",".join('{"type":"function","function":{"name":"f"}}' for _ in range(count)) + "]}")
    if kind == "kwargs":
        return ('{"model":"base","max_tokens":1,"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":['
                + ",".join("{" + ",".join(f'"k{n}":1' for n in range(1000)) + "}" for _ in range(count)) + "]}}")
    if kind == "escapes":
        return '{"model":"base","max_tokens":1,"prompt":"' + "\\u00e9" * count + '"}'
    if kind == "surrogates":
        return '{"model":"base","max_tokens":1,"prompt":"' + "\\ud83d\\ude00" * count + '"}'
    if kind == "digits":
        return head + '"temperature":0.' + "1" * count + "}"
    if kind == "exponent":
        return head + '"x":1e' + "9" * count + "}"
    if kind == "spaces":
        return " " * count + head + '"x":1}'
    if kind == "letters":
        letters = "".join(random.Random(count).choices("abcdefghijklmnopqrstuvwxyz", k=50_000))
        return '{"model":"base","max_tokens":1,"prompt":"' + (letters * (count // len(letters) + 1))[:count] + '"}'
    raise ValueError(kind)


@scenario("json-deep", quick=True)
def json_deep(stage):
    labelled = []
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ('{"messages":[', "]}")):
        for depth in (31, 100, 10_000, 1_000_000):
            for closed in (True, False):
                text = opening * depth + ("1" + closing * depth if closed else "")
                if len(text) > 8 * MIB - 100:
                    continue
                labelled.append((f"{opening}x{depth} {closed}", CHAT, text))
                if depth <= 100_000:
                    labelled.append((f"in a field: {opening}x{depth} {closed}", COMPLETIONS,
                                     '{"model":"base","prompt":"a","max_tokens":1,"x":' + text + "}"))
    for label, text in {"nothing": "", "null": "null", "number": "1", "text": '"a"', "list": "[]", "cut": '{"model"',
                        "twice": '{"model":"nobody","model":"base","prompt":"a","max_tokens":1}',
                        "after": '{"model":"base","prompt":"a","max_tokens":1} x', "comma": '{"model":"base",}',
                        "huge number": '{"model":"base","prompt":"a","temperature":1e999}',
                        "NUL": '{"model":"base","prompt":"a\\u0000b","max_tokens":1}',
                        "half a pair": '{"model":"base","prompt":"\\ud800","max_tokens":1}'}.items():
        labelled.append((label, COMPLETIONS, text))
    for label, data in {"not UTF-8": b'{"model":"base","prompt":"\xff\xfe"}', "mark": b'\xef\xbb\xbf{"model":"base"}',
                        "raw NUL": b'{"model":"base","prompt":"a\0b"}', "UTF-16": '{"model":"base"}'.encode("utf-16")}.items():
        labelled.append((label, COMPLETIONS, data))
    stage.check_answers(stage.attack(ask_bodies, labelled), {200, 400}, within=8)


@scenario("json-wide", quick=True)
def json_wide(stage):
    sizes = {"members": 800_000, "own members": 800_000, "same member": 1_000_000, "values": 4_000_000, "lists": 2_500_000,
             "objects": 900_000, "ids": 4_000_000, "prompts": 2_000_000, "stops": 900_000, "long stop": 8_000_000,
             "bias": 800_000, "bad words": 800_000, "adapters": 280_000, "messages": 260_000, "parts": 290_000,
             "tools": 190_000, "kwargs": 900, "escapes": 1_300_000, "surrogates": 650_000, "digits": 8_000_000,
             "exponent": 8_000_000, "spaces": 8_000_000, "letters": 8_000_000}
    labelled = []
    for kind, count in sizes.items():
        path = CHAT if kind in ("messages", "parts", "tools", "kwargs") else COMPLETIONS
        labelled += [(f"{kind} {count // part}", path, (kind, count // part)) for part in (1, 16)]
    half = len(labelled) // 2
    for answers in stage.attack_all([(ask_bodies, labelled[:half]), (ask_bodies, labelled[half:])]):
        stage.check_answers(answers, {200} | REFUSED, within=15)


@scenario("intake-large-prompts", quick=True)
def intake_large_prompts(stage):
    """Many large prompts at once, from one client and from several, do not delay small requests."""
    size = 8 * MIB - 200
    for sources in ([SOURCES[0]] * 5, SOURCES):
        calls = [(ask_bodies, [(f"letters {n}", COMPLETIONS, ("letters", size - n))], source)
                 for n, source in enumerate(sources)]
        for answers in stage.attack_all(calls):
            stage.check_answers(answers, REFUSED, within=20)


@scenario("intake-large-tokenize", quick=True)
def intake_large_tokenize(stage):
    """Texts and ids that are only tokenized have no limit of the context, but they have one of memory."""
    text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=8 * MIB - 200))
    ids = ",".join(["596"] * 2_000_000)
    labelled = [(f"tokenize {size}", "/tokenize", {"prompt": text[:size], "return_token_strs": True})
                for size in (100_000, 1_000_000, len(text))]
    labelled += [("count", "/v1/messages/count_tokens", {"model": "base", "messages": [{"role": "user", "content": text}]}),
                 ("detokenize", "/detokenize", '{"tokens":[' + ids + "]}"),
                 ("a long answer", "/v1/responses", {"model": "base", "input": "the", "stream": True, "ignore_eos": True})]
    calls = [(ask_bodies, labelled, source) for source in (SOURCES[0], SOURCES[0], SOURCES[1])]
    for answers in stage.attack_all(calls):
        stage.check_answers(answers, {200} | REFUSED, within=20)


# --- held bodies --------------------------------------------------------------------------------------------------------


def hold_bodies(address, connections, megabytes, chunked, seconds, source):
    """Sends nearly whole bodies on many connections and then stops. Returns the number accepted and the responses to
    refusals.
    """
    held, answers = [], []
    block = b" " * 65536
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    end = time.monotonic() + 20
    for number in range(connections):
        if time.monotonic() > end:
            break
        connection = None
        try:
            connection = wire.connect(address, timeout=3, source=source)
            connection.sendall(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 8388608\r\n\r\n"))
            for _ in range(int(megabytes * 16)):
                connection.sendall(b"10000\r\n" + block + b"\r\n" if chunked else block)
            held.append(connection)
        except OSError:
            if connection is not None:
                answers.append(answer_of(connection, f"body {number}"))
                connection.close()
    time.sleep(seconds)
    for number, connection in enumerate(held):
        connection.settimeout(0.01)
        answers.append(answer_of(connection, f"held body {number}"))
        connection.close()
    return [answer for answer in answers if answer is not None]


def answer_of(connection, label):
    """The server's response, if any, to an incomplete request."""
    try:
        received = connection.recv(4096)
    except OSError:
        return None
    if not received.startswith(b"HTTP/1.1 "):
        return None
    head, _, body = received.partition(b"\r\n\r\n")
    return wire.Answer(label, int(head[9:12]), 0.0, body.decode("utf-8", "replace"))


def held_bodies(stage, connections, megabytes, chunked, sources):
    results = stage.attack_all([(hold_bodies, connections, megabytes, chunked, 2.0, source) for source in sources])
    for answers in results:
        stage.check_answers(answers, REFUSED | {408})
    stage.note(f"{len(sources)} clients with {connections} bodies of {megabytes} MB: "
               f"{sum(len(answers or []) for answers in results)} refused, peak {stage.server.memory_mib('VmHWM'):.0f} MiB")


@scenario("bodies-held", quick=True)
def bodies_held(stage):
    held_bodies(stage, 40, 7.9, False, SOURCES[:1])
    held_bodies(stage, 40, 7.9, True, SOURCES[:1])
    rest = stage.server.memory_mib("VmRSS")
    stage.note(f"afterwards {rest:.0f} MiB")


@scenario("bodies-held-by-many")
def bodies_held_by_many(stage):
    """Several clients hold bodies, each within its own share."""
    held_bodies(stage, 60, 7.9, False, SOURCES)
    held_bodies(stage, 250, 0.9, False, SOURCES)
    stage.check_memory_given_back(10)


# --- slow readers -------------------------------------------------------------------------------------------------------


def read_slowly(address, body, connections, seconds):
    """Reads large responses at a few bytes per second."""
    data = wire.request_bytes(CHAT, body)
    opened = []
    for _ in range(connections):
        try:
            connection = wire.connect(address, timeout=3, receive_buffer=4096)
            connection.sendall(data)
            opened.append(connection)
        except OSError:
            pass
    end, refused, closed = time.monotonic() + seconds, 0, 0
    first = {}
    while time.monotonic() < end:
        for connection in opened:
            connection.settimeout(0.02)
            try:
                piece = connection.recv(512)
            except TimeoutError:
                continue
            except OSError:
                piece = b""
            if connection not in first and piece:
                first[connection] = piece
                refused += not piece.startswith(b"HTTP/1.1 200")
            closed += not piece
        time.sleep(0.3)
    for connection in opened:
        connection.close()
    return {"opened": len(opened), "refused": refused, "closed": closed}


ANSWER = {"model": "base", "messages": [{"role": "user", "content": "x"}], "n": 16, "max_tokens": 400, "ignore_eos": True,
          "logprobs": True, "top_logprobs": 20, "temperature": 1}


@scenario("slow-readers")
def slow_readers(stage):
    """Responses of many megabytes, as one body and as a stream, wait for a client that hardly reads."""
    for streamed in (False, True):
        result = stage.attack(read_slowly, {**ANSWER, "stream": streamed}, 8, 8)
        stage.note(f"{'streams' if streamed else 'bodies'}: {result}, peak {stage.server.memory_mib('VmHWM'):.0f} MiB")
        stage.linger(1)


@scenario("slow-reader-of-one-answer")
def slow_reader_of_one_answer(stage):
    result = stage.attack(read_slowly, {**ANSWER, "max_tokens": 150}, 3, 5)
    stage.note(str(result))
    stage.linger(1)
