"""A chorus server as a child process, and plain HTTP requests to it."""

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

# Factor for all time limits, relative to a release build: sanitized servers run several times slower.
TIME_SCALE = float(os.environ.get("CHORUS_TEST_TIME_SCALE", "1"))
START_TIMEOUT_S = 120 * TIME_SCALE


def wait_until(condition, timeout=60):
    """Whether the condition becomes true. The time is long, because a busy machine may stall for seconds."""
    deadline = time.monotonic() + timeout * TIME_SCALE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def soon(measure, seconds, tries=3):
    """Whether measure() returns less than so many seconds in one of several tries. A busy machine may delay some of them, a
    fault of the server delays all.
    """
    return any(measure() < seconds * TIME_SCALE for _ in range(tries))


def unless_slow(attempt, seconds, tries=4):
    """Calls attempt(number), whose assertions hold only if it takes less than so many seconds, until it took so few."""
    for number in range(tries):
        begin = time.monotonic()
        try:
            return attempt(number)
        except AssertionError:
            if number == tries - 1 or time.monotonic() - begin < seconds:
                raise


class ServerProcess:
    """Runs `chorus serve` on a port of the loopback interface, by default a free one; None: without the flag --port."""

    # tls: an ssl.SSLContext for requests to a server that speaks HTTPS.
    def __init__(self, chorus, arguments, env=None, preexec=None, wait=True, port=0, tls=None):
        self.tls = tls
        command = [chorus, "serve", *map(str, arguments), *([] if port is None else ["--port", str(port)])]
        # The log is a file, so that what the server has logged before an answer can be read when the answer is there.
        self._log = tempfile.TemporaryFile()
        self._log_lock = threading.Lock()
        self._log_read, self._log_rest, self._log_lines = 0, b"", []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, preexec_fn=preexec,
            env={**os.environ, **(env or {})})
        self._stdout = queue.Queue()
        threading.Thread(target=self._read_stdout, daemon=True).start()
        self.url = None
        if wait:
            self.wait_ready()

    def _read_stdout(self):
        for line in self.process.stdout:
            self._stdout.put(line)
        self._stdout.put("")

    @property
    def log_lines(self):
        """The lines that the server has logged so far."""
        with self._log_lock:
            ended = self.process.poll() is not None
            # A carriage return does not end a line, and text that is not UTF-8 does not fail the test. The position of the
            # file itself is the server's.
            while piece := os.pread(self._log.fileno(), 1 << 20, self._log_read):
                self._log_read += len(piece)
                *lines, self._log_rest = (self._log_rest + piece).split(b"\n")
                self._log_lines += [line.decode("utf-8", "backslashreplace") for line in lines]
            if ended and self._log_rest:
                self._log_lines.append(self._log_rest.decode("utf-8", "backslashreplace"))
                self._log_rest = b""
            return self._log_lines

    @property
    def log(self):
        return "\n".join(self.log_lines)

    def wait_logged(self, text):
        """Whether the server logs the text, or has logged it."""
        return wait_until(lambda: text in self.log)

    def wait_listening(self):
        line = self._stdout.get(timeout=START_TIMEOUT_S)
        if not line.startswith("listening on "):
            self.process.wait(timeout=60 * TIME_SCALE)
            raise RuntimeError(f"the server did not start: {self.log}")
        self.url = line.split()[-1]

    def wait_ready(self):
        self.wait_listening()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
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

    def connect(self, timeout=60):
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout * TIME_SCALE, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout * TIME_SCALE)

    def request(self, method, path, body=None, headers=None):
        """Returns status, headers (lower case) and the parsed JSON body."""
        connection = self.connect()
        try:
            sent = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            base = {"content-type": "application/json"} if sent is not None else {}
            try:
                connection.request(method, path, sent, {**base, **(headers or {})})
            except (BrokenPipeError, ConnectionResetError):
                pass  # the answer came before the whole body was sent
            response = connection.getresponse()
            text = response.read()
            names = {name.lower(): value for name, value in response.getheaders()}
            return response.status, names, json.loads(text) if text else None
        finally:
            connection.close()

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels."""
        connection = self.connect()
        try:
            connection.request("GET", "/v1/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        samples = re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", text, re.M)
        return sum(float(value) for found, value in samples
                   if all(f'{label}="{wanted}"' in found.split(",") for label, wanted in labels.items()))

    def active(self, headers=None):
        """The number of sequences that run or wait."""
        batch = self.request("GET", "/v1/batch", headers=headers)[2]
        return batch["running"] + batch["waiting"]

    def idle(self):
        """Whether no request is under way: a connection is open as long as its request is prepared or runs, also if its client
        has left.
        """
        return self.metric("chorus_http_connections_open") == 1 and self.active() == 0

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_exit(self, timeout=60):
        return self.process.wait(timeout=timeout * TIME_SCALE)

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
