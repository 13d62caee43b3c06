"""HTTP parsing rules: each line is one request and the response that it must get."""

import re

import wire
from stage import scenario

BODY = b'{"model":"base","prompt":"hi","max_tokens":1}'
POST = b"POST /v1/completions HTTP/1.1\r\n"
GET = b"GET /v1/health/live HTTP/1.1\r\n"
HOST = b"Host: x\r\n"
JSON = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
HIDDEN = b"GET /v1/version HTTP/1.1\r\nHost: y\r\n\r\n"  # the request that smuggling would make the server execute
END = b"\r\n"

# Columns: name, bytes, allowed statuses in order, and CLOSED, KEPT or None for not checked. CLOSED: the server closes
# the connection, so that nothing after the response is read as a request.
CLOSED, KEPT = True, False

TABLE = [
    # Valid requests, which state the length of the body in both ways.
    ("a request", POST + HOST + JSON + LENGTH + END + BODY, [200], KEPT),
    ("chunks", POST + HOST + JSON + CHUNKED + END + CHUNKS, [200], KEPT),
    ("chunks, other case", POST + HOST + JSON + b"transfer-ENCODING:  Chunked  \r\n" + END + CHUNKS, [200], KEPT),
    ("a chunk's extension", POST + HOST + JSON + CHUNKED + END + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1), [200], KEPT),
    ("a charset", POST + HOST + b"Content-Type: application/json; charset=utf-8\r\n" + LENGTH + END + BODY, [200], KEPT),
    ("three requests", (GET + HOST + END) * 3, [200, 200, 200], KEPT),
    ("HTTP/1.0", b"GET /v1/health/live HTTP/1.0\r\n\r\n", [200], CLOSED),
    ("Connection: close", GET + HOST + b"Connection: close\r\n\r\n" + HIDDEN, [200], CLOSED),
    # Content-Type.
    ("no type", POST + HOST + LENGTH + END + BODY, [415], None),
    ("no type, chunks", POST + HOST + CHUNKED + END + CHUNKS, [415], None),
    ("an empty type", POST + HOST + b"Content-Type:\r\n" + LENGTH + END + BODY, [415], None),
    ("text", POST + HOST + b"Content-Type: text/plain\r\n" + LENGTH + END + BODY, [415], None),
    ("a form", POST + HOST + b"Content-Type: application/x-www-form-urlencoded\r\n" + LENGTH + END + BODY, [415], None),
    ("a type that only begins right", POST + HOST + b"Content-Type: application/jsonx\r\n" + LENGTH + END + BODY, [415], None),
    ("two types", POST + HOST + JSON + b"Content-Type: text/plain\r\n" + LENGTH + END + BODY, [{400, 415}], None),
    ("compressed", POST + HOST + JSON + LENGTH + b"Content-Encoding: gzip\r\n" + END + BODY, [{400, 415}], None),
    # Origin.
    ("a foreign origin", POST + HOST + JSON + LENGTH + b"Origin: https://evil.example\r\n" + END + BODY, [403], None),
    ("the null origin", POST + HOST + JSON + LENGTH + b"Origin: null\r\n" + END + BODY, [403], None),
    ("a foreign origin reads", b"GET /v1/models HTTP/1.1\r\n" + HOST + b"Origin: https://evil.example\r\n\r\n", [403], None),
    ("a foreign preflight", b"OPTIONS /v1/completions HTTP/1.1\r\n" + HOST
     + b"Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", [{403, 405}], None),
    # Host.
    ("no host", GET + END, [400], None),
    ("two hosts", GET + b"Host: a\r\nHost: b\r\n\r\n", [400], None),
    ("two equal hosts", GET + b"Host: a\r\nHost: a\r\n\r\n", [400], None),
    ("an empty host", GET + b"Host:\r\n\r\n", [400], None),
    ("a host of blanks", GET + b"Host:   \r\n\r\n", [400], None),
    ("a host with a path", GET + b"Host: a b@/\r\n\r\n", [400], None),
    ("no host with a body", POST + JSON + LENGTH + END + BODY, [400], None),
    # Headers.
    ("obs-fold", GET + HOST + b"X: a\r\n b\r\n\r\n", [400], CLOSED),
    ("obs-fold with a tab", GET + HOST + b"X: a\r\n\tb\r\n\r\n", [400], CLOSED),
    ("obs-fold of a length", POST + HOST + JSON + b"Content-Length:\r\n 45\r\n\r\n" + BODY, [400], CLOSED),
    ("obs-fold of a coding", POST + HOST + JSON + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS, [400], CLOSED),
    ("obs-fold of the host", GET + b"Host:\r\n x\r\n\r\n", [400], CLOSED),
    ("a fold at once", GET + b" X: a\r\n" + HOST + END, [400], CLOSED),
    ("a blank before the colon", POST + HOST + JSON + b"Content-Length : 45\r\n\r\n" + BODY, [400], CLOSED),
    ("no name", GET + HOST + b": a\r\n\r\n", [400], CLOSED),
    ("no colon", GET + HOST + b"abc\r\n\r\n", [400], CLOSED),
    ("a name with a blank", GET + HOST + b"a b: c\r\n\r\n", [400], CLOSED),
    ("NUL in a value", GET + HOST + b"X: a\0b\r\n\r\n", [400], CLOSED),
    ("a return in a value", GET + HOST + b"X: a\rb\r\n\r\n", [400], CLOSED),
    ("many headers", GET + HOST + b"X: y\r\n" * 4000 + END, [{400, 431}], CLOSED),
    ("one long header", GET + HOST + b"X: " + b"y" * 100_000 + b"\r\n\r\n", [{400, 431}], CLOSED),
    ("a long target", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [{400, 414, 431}], CLOSED),
    # Lengths.
    ("no length", POST + HOST + JSON + END, [{400, 411}], None),
    ("two lengths", POST + HOST + JSON + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY, [400], CLOSED),
    ("a list of lengths", POST + HOST + JSON + b"Content-Length: 45, 46\r\n\r\n" + BODY, [400], CLOSED),
    ("a length with a plus", POST + HOST + JSON + b"Content-Length: +45\r\n\r\n" + BODY, [400], CLOSED),
    ("a length below zero", POST + HOST + JSON + b"Content-Length: -1\r\n\r\n" + BODY, [400], CLOSED),
    ("a hexadecimal length", POST + HOST + JSON + b"Content-Length: 0x2d\r\n\r\n" + BODY, [400], CLOSED),
    ("a length beyond 64 bits", POST + HOST + JSON + b"Content-Length: 18446744073709551661\r\n\r\n" + BODY, [{400, 413}], CLOSED),
    ("a length of a body too large", POST + HOST + JSON + b"Content-Length: 99999999\r\n\r\n", [413], CLOSED),
    # Transfer codings, alone and together with a length.
    ("length and chunks", POST + HOST + JSON + LENGTH + CHUNKED + END + CHUNKS, [400], CLOSED),
    ("chunks and length", POST + HOST + JSON + CHUNKED + b"Content-Length: 4\r\n\r\n" + b"0\r\n\r\n" + HIDDEN, [400], CLOSED),
    ("an empty coding", POST + HOST + JSON + b"Transfer-Encoding:\r\n" + END + CHUNKS, [400], CLOSED),
    ("an empty coding and a length", POST + HOST + JSON + b"Transfer-Encoding:\r\n" + LENGTH + END + BODY, [400], CLOSED),
    ("a coding of blanks", POST + HOST + JSON + b"Transfer-Encoding:  \r\n" + LENGTH + END + BODY + HIDDEN, [400], CLOSED),
    ("a coding on HTTP/1.0", b"POST /v1/completions HTTP/1.0\r\n" + HOST + JSON + CHUNKED + END + CHUNKS, [400], CLOSED),
    ("a coding on 1.0, kept", b"POST /v1/completions HTTP/1.0\r\n" + HOST + JSON + CHUNKED + b"Connection: keep-alive\r\n\r\n"
     + CHUNKS + HIDDEN, [400], CLOSED),
    ("an unknown coding", POST + HOST + JSON + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN, [{400, 501}], CLOSED),
    ("identity", POST + HOST + JSON + LENGTH + b"Transfer-Encoding: identity\r\n\r\n" + BODY, [{400, 501}], CLOSED),
    ("chunked, identity", POST + HOST + JSON + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS, [{400, 501}], CLOSED),
    ("chunked twice", POST + HOST + JSON + CHUNKED + CHUNKED + END + CHUNKS, [{400, 501}], CLOSED),
    ("chunked, then identity", POST + HOST + JSON + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n" + CHUNKS, [{400, 501}], CLOSED),
    ("identity, then chunked", POST + HOST + JSON + b"Transfer-Encoding: identity\r\n" + CHUNKED + END + CHUNKS, [{400, 501}], CLOSED),
    ("gzip, chunked", POST + HOST + JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, [{400, 501}], CLOSED),
    ("a coding behind a vertical tab", POST + HOST + JSON + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS, [{400, 501}], CLOSED),
    ("a coding with a blank before the colon", POST + HOST + JSON + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
     [400], CLOSED),
    ("a coding with a zero", POST + HOST + JSON + b"Transfer-Encoding\0: chunked\r\n\r\n" + CHUNKS, [400], CLOSED),
    # Chunks.
    ("a size beyond 64 bits", POST + HOST + JSON + CHUNKED + b"\r\n1000000000000002d\r\n" + BODY + b"\r\n0\r\n\r\n", [{400, 413}], CLOSED),
    ("a size with 0x", POST + HOST + JSON + CHUNKED + b"\r\n0x2d\r\n" + BODY + b"\r\n0\r\n\r\n", [400], CLOSED),
    ("a size with a sign", POST + HOST + JSON + CHUNKED + b"\r\n-1\r\n" + BODY + b"\r\n0\r\n\r\n", [400], CLOSED),
    ("a size behind a blank", POST + HOST + JSON + CHUNKED + b"\r\n 2d\r\n" + BODY + b"\r\n0\r\n\r\n", [400], CLOSED),
    ("no size", POST + HOST + JSON + CHUNKED + b"\r\n\r\n" + BODY + b"\r\n0\r\n\r\n", [400], CLOSED),
    ("lines that end with LF", POST + HOST + JSON + CHUNKED + b"\r\n2d\n" + BODY + b"\n0\n\n" + HIDDEN, [400], CLOSED),
    ("an extension that ends with LF", POST + HOST + JSON + CHUNKED + b"\r\n2d;a\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN, [400], CLOSED),
    ("a chunk longer than it says", POST + HOST + JSON + CHUNKED + b"\r\n2\r\n" + BODY + b"\r\n0\r\n\r\n", [400], CLOSED),
    ("a long extension", POST + HOST + JSON + CHUNKED + b"\r\n2d;a=" + b"x" * 100_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
     [{400, 413, 431}], CLOSED),
    # Request lines.
    ("LF alone", b"GET /v1/health/live HTTP/1.1\nHost: x\n\n", [400], CLOSED),
    ("HTTP/2.0", b"GET /v1/health/live HTTP/2.0\r\nHost: x\r\n\r\n", [{400, 505}], CLOSED),
    ("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [{400, 505}], CLOSED),
    ("HTTP/0.9", b"GET /v1/health/live\r\n\r\n", [400], CLOSED),
    ("lower case", b"GET /v1/health/live http/1.1\r\nHost: x\r\n\r\n", [400], CLOSED),
    ("two blanks", b"GET  /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n", [400], CLOSED),
    ("a tab", b"GET\t/v1/health/live\tHTTP/1.1\r\nHost: x\r\n\r\n", [400], CLOSED),
    ("a control character", b"GET /v1/models/a\x01b HTTP/1.1\r\nHost: x\r\n\r\n", [{400, 404}], None),
    ("a hello of TLS", bytes.fromhex("16030102000100" "01fc0303") + b"\0" * 64, [400], CLOSED),
    ("TRACE", b"TRACE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", [{400, 405, 501}], None),
    ("CONNECT", b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", [{400, 404, 405, 501}], None),
    # Expectations.
    ("an unknown expectation", POST + HOST + JSON + LENGTH + b"Expect: x\r\n\r\n" + BODY, [417], None),
    ("a body too large to continue", POST + HOST + JSON + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n", [413], CLOSED),
]


def send_table(address, rows):
    """rows: bytes, the number of answers, and whether the connection ends."""
    return [wire.exchange(address, data, wait=0.4, answers=answers, closes=closes) for data, answers, closes in rows]


def allowed_text(expected):
    return ", ".join("/".join(map(str, sorted(one))) if isinstance(one, set) else str(one) for one in expected)


@scenario("http-table", quick=True)
def http_table(stage):
    quarter = len(TABLE) // 4 + 1
    parts = [TABLE[begin:begin + quarter] for begin in range(0, len(TABLE), quarter)]
    results = stage.attack_all([(send_table, [(data, len(expected), closes is CLOSED) for _, data, expected, closes in part])
                                for part in parts])
    for part, outcomes in zip(parts, results, strict=True):
        if outcomes is None:
            continue
        for (label, _, expected, closes), (statuses, _, closed) in zip(part, outcomes, strict=True):
            matches = len(statuses) == len(expected) and all(
                got in (wanted if isinstance(wanted, set) else {wanted})
                for got, wanted in zip(statuses, expected, strict=True))
            stage.check(matches, f"{label}: {statuses} instead of {allowed_text(expected)}")
            if matches and closes is not None:
                stage.check(closed == closes, f"{label}: the connection was {'closed' if closed else 'kept'}")


def send_trailers(address):
    """Trailers with important headers are ignored: the request's id and content type come only from its head."""
    trailers = b"X-Request-Id: from-the-trailer\r\nContent-Type: text/plain\r\nOrigin: https://evil.example\r\n" \
               b"Connection: close\r\nHost: b\r\nContent-Length: 5\r\nAuthorization: Bearer trailer\r\n"
    chunks = CHUNKS[:-2] + trailers + b"\r\n"
    return [wire.exchange(address, POST + HOST + JSON + CHUNKED + END + chunks + HIDDEN, wait=1.0, answers=2),
            wire.exchange(address, POST + HOST + CHUNKED + END + CHUNKS[:-2] + JSON + b"\r\n", wait=1.0, answers=1),
            wire.exchange(address, POST + JSON + CHUNKED + END + CHUNKS[:-2] + HOST + b"\r\n", wait=1.0, answers=1)]


@scenario("http-trailers", quick=True)
def http_trailers(stage):
    results = stage.attack(send_trailers)
    if results is None:
        return
    whole, typeless, hostless = results
    stage.check(whole[0] in ([200, 200], [400]), f"trailers beside a good head: {whole[0]}")
    stage.check(b"from-the-trailer" not in whole[1], "a trailer became the request's id")
    stage.check(typeless[0] == [415] or typeless[0] == [400], f"a type in a trailer counts: {typeless[0]}")
    stage.check(hostless[0] == [400], f"a host in a trailer counts: {hostless[0]}")


def ask_continue(address):
    """A client that waits for 100 Continue before it sends its body."""
    connection = wire.connect(address, timeout=wire.PATIENCE_S)
    connection.sendall(POST + HOST + JSON + LENGTH + b"Expect: 100-continue\r\n\r\n")
    first = connection.recv(4096)
    connection.sendall(BODY)
    rest = connection.recv(65536)
    connection.close()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", first + rest)]


@scenario("http-continue")
def http_continue(stage):
    statuses = stage.attack(ask_continue)
    stage.check(statuses == [100, 200], f"Expect: 100-continue is answered by {statuses}")


@scenario("http-cors", flags=("--cors_origins", "https://good.example"))
def http_cors(stage):
    """Only the operator's origins are allowed; an origin that differs in one letter is refused."""
    rows = [("https://good.example", 200), ("https://good.example.evil.example", 403), ("http://good.example", 403),
            ("https://good.example:444", 403), ("https://evil.example", 403), ("null", 403), ("https://good.exampl", 403)]
    results = stage.attack(send_table, [
        (POST + HOST + JSON + LENGTH + b"Origin: " + origin.encode() + b"\r\n" + END + BODY, 1, False) for origin, _ in rows])
    for (origin, status), (statuses, _, _) in zip(rows, results or [], strict=results is not None):
        stage.check(statuses == [status], f"origin {origin}: {statuses} instead of {status}")
