#!/usr/bin/env python3
"""A well-behaved client in a process of its own: streams one short chat answer after another until stdin ends.

    neighbour.py HOST PORT SOURCE_ADDRESS TIMEOUT_S KEY CA_FILE

KEY is its API key; with a CA_FILE it speaks HTTPS. Either may be empty.

Prints a JSON line for each request: `begin` (the monotonic clock, which all processes of a machine share), `first`
(seconds to the first token), `status` (200, another status, or the text of what broke). Every fourth request is sent on a
new connection, so that a port that takes no more connections is noticed.
"""

import functools
import http.client
import json
import os
import ssl
import sys
import threading
import time

PAUSE_S = 0.02
BODY = json.dumps({"model": "base", "messages": [{"role": "user", "content": "two dogs run"}], "max_tokens": 4,
                   "temperature": 0, "stream": True, "ignore_eos": True})


def stream_once(connection, headers):
    """Returns the seconds to the first token, and the status."""
    begun = time.monotonic()
    connection.request("POST", "/v1/chat/completions", BODY, headers)
    response = connection.getresponse()
    if response.status != 200:
        response.read()
        return time.monotonic() - begun, response.status
    first, ended = None, False
    for line in response:
        if first is None and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - begun
        ended = ended or line.startswith(b"data: [DONE]")
    if first is None or not ended:
        return time.monotonic() - begun, "a stream without a token or without its end"
    return first, 200


def main():
    host, port, source, timeout = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    key, ca = sys.argv[5:7]
    headers = {"Content-Type": "application/json"} | ({"x-api-key": key} if key else {})
    kind = functools.partial(http.client.HTTPSConnection, context=ssl.create_default_context(cafile=ca)) if ca else \
        http.client.HTTPConnection

    def end_with_parent():
        sys.stdin.read()
        os._exit(0)
    threading.Thread(target=end_with_parent, daemon=True).start()
    connection, count = None, 0
    while True:
        if connection is None or count % 4 == 0:
            if connection is not None:
                connection.close()
            connection = kind(host, port, timeout=timeout, source_address=(source, 0))
        count += 1
        begun = time.monotonic()
        kept = connection.sock is not None
        try:
            try:
                first, status = stream_once(connection, headers)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                if not kept:
                    raise
                # The server may close a connection between two requests, so clients repeat such a request.
                connection.close()
                first, status = stream_once(connection, headers)
                first = time.monotonic() - begun if status == 200 and first else first
        except (OSError, http.client.HTTPException) as error:
            first, status = time.monotonic() - begun, f"{type(error).__name__}: {error}"
            connection.close()
            connection = None
        print(json.dumps({"begin": begun, "first": first, "status": status}), flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
