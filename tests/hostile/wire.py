"""Socket functions for attackers and neighbours: whole requests, raw bytes, connections left open. Loopback only.

Every function takes the server's (host, port) first and connects from `source`, by default 127.0.0.1. The server counts
clients by address, and a scenario's neighbour has another one.
"""

import collections
import http.client
import json
import re
import resource
import socket
import time

import server_process

ATTACKER = "127.0.0.1"
KEPT_BODY = 4000
PATIENCE_S = 20  # for something that comes at once on an idle machine

# status: a number, or the error text of a broken connection. seconds: from connecting to the end of the answer.
Answer = collections.namedtuple("Answer", "label status seconds body")


def raise_file_limit():
    """Raises the limit on open files for thousands of sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(address, timeout=30, source=ATTACKER, receive_buffer=None):
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.bind((source, 0))
    connection.connect(address)
    return connection


def encoded(body):
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")


def ask(address, path, body=None, label="", method="POST", headers=None, timeout=60, source=ATTACKER):
    """Sends one request on a new connection. An error of the connection is returned as an Answer too.

    timeout: seconds for a release build; a slower build has more (server_process.TIME_SCALE).
    """
    begun = time.monotonic()
    connection = http.client.HTTPConnection(*address, timeout=timeout * server_process.TIME_SCALE,
                                            source_address=(source, 0))
    try:
        sent = None if body is None else encoded(body)
        base = {"Content-Type": "application/json"} if sent is not None else {}
        connection.request(method, path, sent, {**base, **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        return Answer(label, response.status, time.monotonic() - begun, text[:KEPT_BODY].decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as error:
        early = _early_answer(connection, error)
        return Answer(label, early or f"{type(error).__name__}: {error}", time.monotonic() - begun, "")
    finally:
        connection.close()


def _early_answer(connection, error):
    """The status of a refusal that arrived while the body was being sent."""
    if not isinstance(error, (BrokenPipeError, ConnectionResetError)) or connection.sock is None:
        return None
    try:
        connection.sock.settimeout(1)
        head = connection.sock.recv(4096)
    except OSError:
        return None
    found = re.match(rb"HTTP/1\.1 (\d+)", head)
    return int(found.group(1)) if found else None


def request_bytes(path, body, headers=()):
    """A whole POST request with a JSON body, as bytes."""
    data = encoded(body)
    lines = [f"POST {path} HTTP/1.1", "Host: hostile", "Content-Type: application/json",
             f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def send_and_leave(address, data, stay=0.05, source=ATTACKER):
    """Sends bytes and closes the connection without waiting for an answer."""
    try:
        connection = connect(address, source=source)
        connection.sendall(data)
        time.sleep(stay)
        connection.close()
    except OSError:
        pass


def exchange(address, data, wait=2.0, source=ATTACKER, answers=0, closes=False):
    """Sends raw bytes. Returns the statuses received, all bytes received, and whether the server closed the connection.

    It waits patiently for so many answers and, with `closes`, for the end of the connection; after them for `wait` seconds.
    """
    statuses, received, closed = [], b"", False
    patience = PATIENCE_S * server_process.TIME_SCALE
    try:
        connection = connect(address, timeout=patience, source=source)
    except OSError as error:
        return [], repr(error).encode(), True
    try:
        connection.sendall(data)
    except OSError:
        pass  # responses sent before the server closed still count
    try:
        while len(received) < 1 << 22:
            connection.settimeout(patience if closes or len(statuses) < answers else wait)
            piece = connection.recv(65536)
            if not piece:
                closed = True
                break
            received += piece
            statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
    except TimeoutError:
        pass
    except OSError:
        closed = True
    finally:
        connection.close()
    return statuses, received, closed
