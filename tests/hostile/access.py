"""Attacks on a server with API keys that speaks HTTPS: garbage and unfinished handshakes, floods with one key."""

import http.client
import random
import socket
import ssl
import time

import certificates
import setting
import wire
from connections import MANY, hold_open
from stage import NEIGHBOUR, scenario

COMPLETIONS = "/v1/completions"
KEYS = """
keys:
  - {name: calm, key: key-of-calm}
  - {name: flood, key: key-of-flood, limits: {requests_per_minute: 600, tokens_per_minute: 200000, concurrent_requests: 4}}
"""


def files():
    """The certificate, its key and the file of API keys of this run. Attackers, which import this module in processes of
    their own, need none.
    """
    if setting.chorus is None:
        return "", "", ""
    folder = setting.scratch() / "access"
    folder.mkdir(exist_ok=True)
    cert, key = certificates.make(folder, "hostile")
    keys = folder / "keys.yaml"
    keys.write_text(KEYS)
    return str(cert), str(key), str(keys)


CERT, KEY, KEYS_FILE = files()
TLS = ("--tls_cert_file", CERT, "--tls_key_file", KEY, "--api_keys_file", KEYS_FILE)
CALM = {"flags": TLS, "key": "key-of-calm", "ca": CERT}


def hello():
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def ask(address, path, body=None, key="", source=wire.ATTACKER, timeout=60, context=None):
    """wire.ask() over HTTPS, without a check of the certificate."""
    begun = time.monotonic()
    connection = http.client.HTTPSConnection(
        *address, timeout=timeout * wire.server_process.TIME_SCALE, source_address=(source, 0),
        context=context or ssl._create_unverified_context())
    headers = {"Content-Type": "application/json"} | ({"x-api-key": key} if key else {})
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else wire.encoded(body), headers)
        response = connection.getresponse()
        text = response.read()[:wire.KEPT_BODY].decode("utf-8", "replace")
        return wire.Answer(path, response.status, time.monotonic() - begun, text)
    except (OSError, http.client.HTTPException) as error:
        return wire.Answer(path, f"{type(error).__name__}: {error}", time.monotonic() - begun, "")
    finally:
        connection.close()


def health_over_tls(address, seconds):
    answers, end = [], time.monotonic() + seconds
    time.sleep(0.7)
    while time.monotonic() < end:
        for source in (NEIGHBOUR, "127.0.0.9"):
            answers.append(ask(address, "/v1/health/live", source=source, timeout=3))
        time.sleep(0.2)
    return answers


health_over_tls.measures = True


def send_garbage(address, seconds, seed):
    """Bytes that are no handshake, cut and changed handshakes, and HTTP without TLS, half of them with the end of the
    client's bytes. Returns how many connections the server ended, for how many it waited for the rest of a message
    when the client left, and how many it held for ten seconds although the client's bytes had ended.
    """
    draw, first, end = random.Random(seed), hello(), time.monotonic() + seconds
    ended = waited = hung = 0
    # On a busy machine few connections end in that time.
    while time.monotonic() < end or ended <= 10 and time.monotonic() < end + 30:
        data = bytearray(first)
        kind = draw.randrange(6)
        if kind == 0:
            data = data[:draw.randrange(len(data))] or b"x"
        elif kind == 1:
            for _ in range(draw.randrange(1, 20)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        elif kind == 2:
            data = draw.randbytes(draw.randrange(1, 70_000))
        elif kind == 3:
            data = first * draw.randrange(2, 50)
        elif kind == 4:  # a record that says it is longer, and never ends
            data[3:5] = draw.randbytes(2)
        else:
            data = wire.request_bytes(COMPLETIONS, {"model": "base", "prompt": "x" * draw.randrange(50_000)})
        half_closed = draw.random() < 0.5
        try:
            with wire.connect(address, timeout=10) as connection:
                connection.sendall(data)
                if half_closed:
                    connection.shutdown(socket.SHUT_WR)
                else:
                    connection.settimeout(0.1)
                while connection.recv(65536):
                    pass
                ended += 1
        except TimeoutError:
            hung += half_closed
            waited += not half_closed
        except OSError:
            ended += 1
    return {"ended": ended, "waited": waited, "hung": hung}


@scenario("tls-garbage", quick=True, **CALM)
def tls_garbage(stage):
    """Three clients send what is no handshake, as fast as they can."""
    results = stage.attack_all([(send_garbage, 3, seed) for seed in range(3)])
    stage.note(str(results))
    for result in results:
        stage.check_time(result and result["ended"] > 10, "the server did not end connections")
        stage.check_time(not (result and result["hung"]), "the server held connections whose bytes had ended")
    answers = stage.attack(health_over_tls, 1)
    stage.check_answers(answers, {200}, within=2)


@scenario("tls-half-open", quick=True, **CALM)
def tls_half_open(stage):
    """One address opens thousands of connections and never completes a handshake."""
    announced = b"\x16\x03\x01\x40\x00" + b"\x01" + (131_000).to_bytes(3, "big") + bytes(16380)
    body = b"\x03\x03" + bytes(33) + (15_600).to_bytes(2, "big") + b"\x13\x01" * 7_800 + b"\x01\x00"
    repeated = b"\x16\x03\x01" + (len(body) + 4).to_bytes(2, "big") + b"\x01" + len(body).to_bytes(3, "big") + body
    for label, first_bytes in (("silent", b""), ("half a handshake", hello()[:60]), ("a whole first message", hello()),
                               ("a first message that announces 131,000 bytes", announced),
                               ("a first message of 7,800 cipher suites", repeated)):
        results = stage.attack_all([(hold_open, 2000, wire.ATTACKER, first_bytes, 3), (health_over_tls, 3)])
        stage.check_answers(results[-1], {200}, within=2)
        stage.check_time(results[-1], f"{label}: no answer of health")
        stage.note(f"{label}: {results[0]['opened'] if results[0] else 0} connections were opened")


@scenario("tls-half-open-of-many", **CALM)
def tls_half_open_of_many(stage):
    """Several addresses hold half-open handshakes and drip bytes into them."""
    calls = [(hold_open, 400, source, hello()[:60], 4, b"\0") for source in MANY]
    results = stage.attack_all([*calls, (health_over_tls, 4)])
    stage.check_answers(results[-1], {200}, within=2)


def flood(address, seconds, body, key):
    """Sends one request after the other and does not wait when it is refused. Returns the number of each status."""
    context = ssl._create_unverified_context()
    data = (f"POST {COMPLETIONS} HTTP/1.1\r\nHost: hostile\r\nContent-Type: application/json\r\nx-api-key: {key}\r\n"
            f"Content-Length: {len(wire.encoded(body))}\r\n\r\n").encode() + wire.encoded(body)
    statuses, end, connection = {}, time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if connection is None:
                connection = context.wrap_socket(wire.connect(address, timeout=10))
            connection.sendall(data)
            head = b""
            while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
                head += piece
            head, _, rest = head.partition(b"\r\n\r\n")
            status = int(head[9:12])
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            while len(rest) < length and (piece := connection.recv(65536)):
                rest += piece
        except (OSError, ValueError) as error:
            status, connection = type(error).__name__, None
        statuses[status] = statuses.get(status, 0) + 1
    return statuses


@scenario("key-flood", quick=True, **CALM)
def key_flood(stage):
    """A key with limits sends without end, from several connections; another key keeps its time to first token."""
    for label, body in (("short", {"model": "base", "prompt": "hi", "max_tokens": 100, "ignore_eos": True}),
                        ("long prompts", {"model": "base", "prompt": "two dogs run " * 5000, "max_tokens": 1}),
                        ("many choices", {"model": "base", "prompt": "hi", "n": 16, "max_tokens": 200})):
        results = stage.attack_all([(flood, 3, body, "key-of-flood") for _ in range(8)])
        total = {}
        for result in results:
            for status, count in (result or {}).items():
                total[status] = total.get(status, 0) + count
        stage.note(f"{label}: {total}")
        stage.check_time("TimeoutError" not in total, f"{label}: {total}")
        stage.check(set(total) <= {200, 400, 429, 503, "TimeoutError"}, f"{label}: {total}")
        if label == "short":
            begin, end = stage.windows[-1]
            stage.check_time(total.get(429, 0) > 10, f"no request was refused: {total}")
            # Ten requests come back in each second.
            stage.check(total.get(200, 0) <= 610 + 10 * (end - begin),
                        f"more requests were answered than the limit allows: {total}")


def connect_without_end(address, seconds):
    """Completes handshakes one after the other and sends nothing. Returns their number."""
    context, count, end = ssl._create_unverified_context(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with context.wrap_socket(wire.connect(address, timeout=5)):
                count += 1
        except OSError:
            pass
    return count


@scenario("tls-handshakes", **CALM)
def tls_handshakes(stage):
    """Four clients do nothing but handshakes."""
    results = stage.attack_all([(connect_without_end, 4) for _ in range(4)])
    stage.note(f"{sum(result or 0 for result in results)} handshakes")
