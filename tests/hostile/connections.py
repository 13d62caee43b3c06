"""Connections that are silent, send half a request, or are closed early: others can still connect, and slots are freed.
"""

import random
import signal
import socket
import struct
import time

import wire
from hostile_server import DRAIN_S, time_scale
from stage import NEIGHBOUR, scenario

COMPLETIONS = "/v1/completions"
MANY = [wire.ATTACKER, "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7"]


def open_many(address, count, source, first_bytes=b""):
    """Opens as many connections as possible, up to `count`; connections that the server closes at once count as well.
    """
    opened = []
    for _ in range(count):
        try:
            connection = wire.connect(address, timeout=2, source=source)
            if first_bytes:
                connection.sendall(first_bytes)
            opened.append(connection)
        except OSError:
            break
    return opened


def hold_open(address, count, source, first_bytes, seconds, drip=b""):
    """Holds connections open and, with `drip`, sends these bytes on each of them twice a second."""
    opened = open_many(address, count, source, first_bytes)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.5)
        for connection in opened if drip else ():
            try:
                connection.sendall(drip)
            except OSError:
                pass  # the server has given the slot to another client
    for connection in opened:
        connection.close()
    return {"opened": len(opened)}


def health_of_others(address, seconds):
    """Health and small requests on new connections, from one client with no connections and one with many."""
    answers, end = [], time.monotonic() + seconds
    time.sleep(0.7)
    while time.monotonic() < end:
        for source in (NEIGHBOUR, "127.0.0.9"):
            answers.append(wire.ask(address, "/v1/health/live", None, f"health from {source}", method="GET", timeout=3,
                                    source=source))
        time.sleep(0.2)
    return answers


health_of_others.measures = True


def held_beside_health(stage, label, first_bytes, drip=b"", sources=(wire.ATTACKER,), count=1100, seconds=3):
    calls = [(hold_open, count // len(sources) + 1, source, first_bytes, seconds, drip) for source in sources]
    results = stage.attack_all([*calls, (health_of_others, seconds)])
    stage.check_answers(results[-1], {200}, within=2)
    stage.check_time(results[-1], f"{label}: no answer of health")
    stage.note(f"{label}: {sum(result['opened'] for result in results[:-1] if result)} connections were opened")


@scenario("connections-silent", quick=True)
def connections_silent(stage):
    held_beside_health(stage, "silent", b"")


@scenario("connections-of-many-clients")
def connections_of_many_clients(stage):
    """Several addresses together open as many connections as the server accepts."""
    held_beside_health(stage, "silent", b"", sources=MANY, count=2400)
    held_beside_health(stage, "half a header", b"GET /v1/models HTTP/1.1\r\nHost:", sources=MANY, count=2400)


@scenario("connections-half-open")
def connections_half_open(stage):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
    held_beside_health(stage, "a byte", b"G")
    held_beside_health(stage, "a dripping header", b"GET /v1/models HTTP/1.1\r\nX: ", drip=b"y")
    held_beside_health(stage, "a header without its end", head)
    held_beside_health(stage, "a dripping body", head + b"\r\n{", drip=b" ")
    held_beside_health(stage, "idle after an answer", b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n")


def abort_many(address, count, data, reset, pause):
    """Sends requests and closes their connections at once, by FIN or by RST."""
    for _ in range(count):
        try:
            connection = wire.connect(address, timeout=2)
            connection.sendall(data)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(pause)
            connection.close()
        except OSError:
            time.sleep(0.01)
    return []


@scenario("connections-aborted")
def connections_aborted(stage):
    """A thousand requests whose clients have disconnected, queued behind large requests."""
    large = wire.request_bytes(COMPLETIONS, {"model": "base", "prompt": "dogs " * 400_000, "max_tokens": 1})
    small = wire.request_bytes(COMPLETIONS, {"model": "base", "prompt": "hi", "max_tokens": 50})
    for reset in (True, False):
        results = stage.attack_all([(abort_many, 6, large, reset, 0.01), (abort_many, 600, small, reset, 0.0005),
                                    (health_of_others, 3)])
        stage.check_answers(results[-1], {200}, within=3)
    stage.linger(1)
    time.sleep(0.5)
    answers = stage.attack(health_of_others, 1.5)
    stage.check_answers(answers, {200}, within=1)


# --- left while an answer is computed -----------------------------------------------------------------------------------

LEAVERS = {
    "nothing": b"",
    "a byte": b"G",
    "junk of 1,000": b"G" * 1000,
    "junk of 100,000": b"G" * 100_000,
    "junk of 3 MB": b"\x00" * 3_000_000,
    "pipelined requests": b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 2000,
    "a body that is under way": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                b"Content-Length: 8000000\r\n\r\n" + b" " * 500_000,
}


def leave_after(address, junk, streamed, reset):
    """Sends a request for many tokens, then `junk`, then closes the connection by FIN or RST."""
    body = {"model": "base", "prompt": "hi", "max_tokens": 900, "n": 16, "ignore_eos": True, "temperature": 1,
            "stream": streamed}
    connection = wire.connect(address)
    connection.sendall(wire.request_bytes(COMPLETIONS, body))
    time.sleep(0.3)
    connection.settimeout(0.2)
    try:
        connection.sendall(junk)
    except OSError:
        pass  # the server may stop reading
    time.sleep(0.1)
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return []


@scenario("connections-left", quick=True)
def connections_left(stage):
    """The server stops computing for a client that disconnects, whatever the client sent before."""
    server = stage.server
    # The neighbour is paused, so that any computing is for the disconnected clients.
    stage.neighbour.signal(signal.SIGSTOP)
    try:
        for index, (label, junk) in enumerate(LEAVERS.items()):
            streamed = index % 2 == 1
            stage.attack(leave_after, junk, streamed, index % 3 == 2)
            stage.windows.pop()
            quiet = server.wait(lambda: cpu_share(server, 0.3) < 0.1, 1.5)
            stage.check_time(quiet, f"after {label} ({'stream' if streamed else 'body'}) the server computes on")
            if not quiet:
                server.wait(lambda: cpu_share(server, 0.5) < 0.1, 30)
    finally:
        stage.neighbour.signal(signal.SIGCONT)
    time.sleep(0.5)
    stage.linger(1)


def cpu_share(server, seconds):
    """CPU time as a share of one core."""
    before, begun = server.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu_seconds() - before) / (time.monotonic() - begun)


# --- the end ------------------------------------------------------------------------------------------------------------


@scenario("connections-at-sigterm", ends_server=True)
def connections_at_sigterm(stage):
    """SIGTERM ends the server within the drain time beside silent, half-sent, long-running and unread connections."""
    long = {"model": "base", "prompt": "hi", "n": 16, "max_tokens": 900, "ignore_eos": True, "temperature": 1}
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
    seconds = DRAIN_S + 7
    quiet = stage.server.open_files()
    with stage.during([(hold_open, 20, "127.0.0.1", b"", seconds), (hold_open, 20, "127.0.0.3", b"GET /", seconds, b"x"),
                       (hold_open, 20, "127.0.0.4", head, seconds, b" "),
                       (hold_open, 10, "127.0.0.5", wire.request_bytes(COMPLETIONS, long), seconds),
                       (hold_open, 10, "127.0.0.6", wire.request_bytes(COMPLETIONS, {**long, "stream": True}), seconds)]):
        stage.check_time(stage.server.wait(lambda: stage.server.open_files() >= quiet + 80, 60), "the attackers do not connect")
        time.sleep(0.5)
        code, seconds = stage.server.end()
    # The attackers use the machine's cores too, which may delay the end.
    stage.check_time(code == 0 and seconds < DRAIN_S + time_scale(), f"SIGTERM: status {code} after {seconds:.1f} s")
    stage.check(code in (0, None), f"SIGTERM: status {code}")
    stage.note(f"ended after {seconds:.1f} s")


# --- raw bytes ----------------------------------------------------------------------------------------------------------


def raw_fuzz(address, seed, count):
    """Sends mutated requests and returns the number of responses for each status."""
    rng = random.Random(seed)
    body = b'{"model":"base","prompt":"hi","max_tokens":1}'
    seeds = [b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
             % len(body) + body,
             b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"%x;a=b\r\n" % len(body) + body + b"\r\n0\r\nA: b\r\n\r\n",
             b"GET /v1/models/base HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
             b"HEAD /v1/models HTTP/1.0\r\n\r\n", b"OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\n\r\n"]
    pieces = [b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"0", b"f" * 16, b"chunked", b"Content-Length: 1\r\n",
              b"Transfer-Encoding: chunked\r\n", b"\0", b"\xff", b"HTTP/1.1", b"%00", b"100-continue", b",", b"Host: y\r\n",
              b" folded\r\n"]
    statuses = {}
    for _ in range(count):
        data = bytearray(b"".join(rng.choice(seeds) for _ in range(rng.choice([1, 1, 2]))))
        for _ in range(rng.randrange(1, 5)):
            at, kind = rng.randrange(len(data) + 1), rng.random()
            if kind < 0.5:
                data[at:at] = rng.choice(pieces)
            elif kind < 0.75:
                del data[at:at + rng.randrange(1, 10)]
            elif at < len(data):
                data[at] = rng.randrange(256)
        for status in wire.exchange(address, bytes(data), wait=0.02)[0]:
            statuses[status] = statuses.get(status, 0) + 1
    return statuses


@scenario("http-fuzz")
def http_fuzz(stage):
    for statuses in stage.attack_all([(raw_fuzz, seed, 500) for seed in (1, 2)]):
        stage.note(str(dict(sorted((statuses or {}).items()))))
        bad = [status for status in statuses or {} if status >= 500 and status not in (501, 503, 505)]
        stage.check(not bad, f"statuses {bad}")
