#!/usr/bin/env python3
"""Opens 10,000 connections to a server and leaves them idle: they may take 200 MB at most, and others are answered.

    idle_connections.py --chorus build/release/bin/chorus --demo examples/demo

Every second connection has had an answer before; the others never send a byte.
"""

import argparse
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "e2e"))
from server_process import TIME_SCALE, ServerProcess  # noqa: E402
from serving import kilobytes  # noqa: E402

MOST_KB = 200_000
HEALTH = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def open_files(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--connections", type=int, default=10_000)
    arguments = parser.parse_args()
    count = arguments.connections
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500) if hard > 0 else count + 500, hard))
    with tempfile.TemporaryDirectory(prefix="chorus-idle-") as scratch, ServerProcess(arguments.chorus, [
            arguments.demo / "base", "--cache_dir", Path(scratch) / "cache", "--log_level", "warning", "--max_connections",
            count + 100, "--max_connections_per_client", count + 100]) as server:
        ask = {"model": "base", "prompt": "two dogs", "max_tokens": 4, "temperature": 0}
        alone = server.request("POST", "/v1/completions", ask)[2]["choices"]
        memory, files = kilobytes(server, "VmRSS"), open_files(server)
        held = []
        for i in range(count):
            connection = socket.create_connection((server.host, server.port), timeout=30 * TIME_SCALE)
            if i % 2:
                connection.sendall(HEALTH)
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    sys.exit("no answer of health")
            held.append(connection)
        opened = open_files(server) - files
        grown = kilobytes(server, "VmRSS") - memory
        begin = time.monotonic()
        status, _, answer = server.request("POST", "/v1/completions", ask)
        milliseconds = 1000 * (time.monotonic() - begin)
        for connection in held:
            connection.close()
        code = server.stop()
    print(f"{opened} idle connections took {grown} kB; a request beside them {milliseconds:.0f} ms")
    if opened < 0.99 * count:
        sys.exit(f"the server holds only {opened} of {count} connections")
    if grown > MOST_KB:
        sys.exit(f"more than {MOST_KB} kB")
    if status != 200 or answer["choices"] != alone or milliseconds > 5000 * TIME_SCALE:
        sys.exit(f"another client is not served: {status} {answer}")
    if code != 0:
        sys.exit(f"the server's exit status is {code}")


if __name__ == "__main__":
    main()
