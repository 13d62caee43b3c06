"""A chorus server as a child process, and plain HTTP requests to it."""

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.parse

# Factor for all time limits, relative to a release build: sanitized servers run several times slower.
TIME_SCALE = float(os.environ.get("CHORUS_TEST_TIME_SCALE", "1"))
START_TIMEOUT_S = 120 * TIME_SCALE


class ServerProcess:
    """Runs `chorus serve` on a port of the loopback interface, by default a free one; None: without the flag --port."""

    # tls: an ssl.SSLContext for requests to a server that speaks HTTPS.
    def __init__(self, chorus, arguments, env=None, preexec=None, wait=True, port=0, tls=None):
        self.tls = tls
        command = [chorus, "serve", *map(str, arguments), *([] if port is None else ["--port", str(port)])]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec,
            env={**os.environ, **(env or {})})
        self.log_lines = []
        self._stdout = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.url = None
        if wait:
            self.wait_ready()

    def _read_stdout(self):
        for line in self.process.stdout:
            self._stdout.put(line)
        self._stdout.put("")

    def _read_stderr(self):
        # Reads bytes, so that a carriage return does not end a line and text that is not UTF-8 does not fail the test.
        for line in self.process.stderr.buffer:
            self.log_lines.append(line.decode("utf-8", "backslashreplace").rstrip("\n"))

    @property
    def log(self):
        return "\n".join(self.log_lines)

    def wait_listening(self):
        line = self._stdout.get(timeout=START_TIMEOUT_S)
        if not line.startswith("listening on "):
            self.process.wait(timeout=10)
            raise RuntimeError(f"the server did not start: {self.log}")
        self.url = line.split()[-1]

    def wait_ready(self):
        self.wait_listening()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self._readers[1].join(timeout=5)
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.log}")
            if self.request("GET", "/v1/health/ready")[0] == 200:
                return
            time.sleep(0.05)
        raise RuntimeError("the server was not ready in time")

    def process_status(self):
        """The text of /proc/PID/status."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return file.read()

    def resident_kb(self):
        return int(re.search(r"^VmRSS:\s+(\d+) kB", self.process_status(), re.M)[1])

    @property
    def host(self):
        return urllib.parse.urlsplit(self.url).hostname

    @property
    def port(self):
        return urllib.parse.urlsplit(self.url).port

    def connect(self, timeout=30):
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout * TIME_SCALE, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout * TIME_SCALE)

    def request(self, method, path, body=None, headers=None):
        """Returns status, headers (lower case) and the parsed JSON body."""
        connection = self.connect()
        try:
            sent = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            base = {"content-type": "application/json"} if sent is not None else {}
            connection.request(method, path, sent, {**base, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            names = {name.lower(): value for name, value in response.getheaders()}
            return response.status, names, json.loads(text) if text else None
        finally:
            connection.close()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_exit(self, timeout=60):
        code = self.process.wait(timeout=timeout * TIME_SCALE)
        self._readers[1].join(timeout=5)
        return code

    def stop(self):
        """Stops the server by any means and returns its exit status."""
        if self.process.poll() is None:
            self.signal()
            try:
                return self.wait_exit()
            except subprocess.TimeoutExpired:
                self.process.kill()
                return self.process.wait()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
