#!/usr/bin/env python3
"""Opens 10,000 connections to a server and leaves them idle: they may take 200 MB at most, and others are answered.

    idle_connections.py --chorus build/release/bin/chorus --demo examples/demo [--tls]

Every second connection has had an answer before; the others never send a byte, except for the handshake of TLS.
"""

import argparse
import resource
import socket
import ssl
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "e2e"))
import certificates  # noqa: E402
from server_process import TIME_SCALE, ServerProcess, soon  # noqa: E402

MOST_KB_EACH = 20
# The server closes a connection that is idle for 75 s, so all must be opened in less.
OPENING_S = 50
HEALTH = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def open_files(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def start(arguments, scratch):
    count = arguments.connections + 100
    options = [arguments.demo / "base", "--cache_dir", scratch / "cache", "--log_level", "warning",
               "--max_connections", count, "--max_connections_per_client", count]
    tls = None
    if arguments.tls:
        cert, key = certificates.make(scratch, "server")
        options += ["--tls_cert_file", cert, "--tls_key_file", key]
        tls = ssl.create_default_context(cafile=cert)
    return ServerProcess(arguments.chorus, options, tls=tls)


def connect(server, asks):
    connection = socket.create_connection((server.host, server.port), timeout=30 * TIME_SCALE)
    if server.tls:
        connection = server.tls.wrap_socket(connection, server_hostname="localhost")
    if asks:
        connection.sendall(HEALTH)
        if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("no answer of health")
    return connection


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--tls", action="store_true", help="the connections speak TLS")
    parser.add_argument("--most_kb", type=int, help=f"what they may take; by default {MOST_KB_EACH} for each")
    arguments = parser.parse_args()
    count = arguments.connections
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500) if hard > 0 else count + 500, hard))
    with tempfile.TemporaryDirectory(prefix="chorus-idle-") as scratch, start(arguments, Path(scratch)) as server:
        ask = {"model": "base", "prompt": "two dogs", "max_tokens": 4, "temperature": 0}
        alone = server.request("POST", "/v1/completions", ask)[2]["choices"]
        memory, files = server.resident_kb(), open_files(server)
        end = time.monotonic() + OPENING_S

        def open_in_time(number):
            return connect(server, number % 2 == 1) if time.monotonic() < end else None
        with ThreadPoolExecutor(4) as threads:
            held = [connection for connection in threads.map(open_in_time, range(count)) if connection is not None]
        opened = open_files(server) - files
        grown = server.resident_kb() - memory
        times, answers = [], []

        def seconds():
            begin = time.monotonic()
            answers.append(server.request("POST", "/v1/completions", ask))
            times.append(time.monotonic() - begin)
            return times[-1]
        served_soon = soon(seconds, 5)
        for connection in held:
            connection.close()
        code = server.stop()
    kind = "idle connections with TLS" if arguments.tls else "idle connections"
    print(f"{opened} {kind} took {grown} kB; a request beside them {1000 * times[-1]:.0f} ms")
    if opened < 0.99 * count:
        sys.exit(f"the server holds only {opened} of {count} connections, of which {len(held)} were opened in time")
    most = arguments.most_kb or MOST_KB_EACH * len(held)
    if grown > most:
        sys.exit(f"more than {most} kB")
    wrong = [answer for answer in answers if answer[0] != 200 or answer[2]["choices"] != alone]
    if wrong or not served_soon:
        sys.exit(f"another client is not served: {wrong} {times}")
    if code != 0:
        sys.exit(f"the server's exit status is {code}")


if __name__ == "__main__":
    main()
