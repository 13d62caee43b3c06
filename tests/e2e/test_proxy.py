"""Two servers behind a proxy, with the configurations of packaging/: streams, a rolling restart under load, affinity."""

import http.client
import json
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import setting
from server_process import TIME_SCALE, ServerProcess, wait_until

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
MODELS = ["base", "roman", "shout", "german", "json", "sum"]
BODY = {"prompt": "two dogs", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def free_port():
    """A port that no client gets by chance before it is used, as those that the system chooses from 32768 on."""
    while True:
        port = random.randrange(15000, 32000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            pass


def free_ports(count):
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


class Proxy:
    """A proxy as a child process. Its configuration is the packaged one with other ports."""

    def __init__(self, packaged, ports, further=()):
        self.port = free_port()
        text = (PACKAGING / packaged).read_text(encoding="utf-8")
        for old, new in ((":8001", f":{ports[0]}"), (":8002", f":{ports[1]}"), ("listen 8080", f"listen 127.0.0.1:{self.port}"),
                         ("bind :8080", f"bind 127.0.0.1:{self.port}"), *further):
            text = text.replace(old, new)
        self._folder = tempfile.TemporaryDirectory(prefix="chorus-proxy-")
        folder = Path(self._folder.name)
        if packaged.startswith("nginx"):
            (folder / "chorus.conf").write_text(text)
            paths = "".join(f"{name}_temp_path {folder}/{name};" for name in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            (folder / "nginx.conf").write_text(
                f"pid {folder}/pid; error_log stderr warn; worker_processes 2; daemon off;\n"
                f"events {{ worker_connections 512; }}\n"
                f"http {{ access_log off; {paths} include {folder}/chorus.conf; }}\n")
            command = [shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"]
        else:
            (folder / "haproxy.cfg").write_text(text)
            command = [shutil.which("haproxy", path="/usr/sbin:/usr/bin"), "-db", "-f", folder / "haproxy.cfg"]
        # Not a pipe that nobody reads: nginx has a line for each try of a server that restarts, and a full pipe stops it.
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        if not wait_until(self._listens):
            self.process.kill()
            raise RuntimeError(f"the proxy did not start: {(folder / 'log').read_text()}")

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=60 * TIME_SCALE).close()
            return True
        except OSError:
            return False

    def ask(self, body, after_first=lambda: None):
        """Returns the status, the headers and the parts in which the body arrived. after_first: called after the first."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * TIME_SCALE)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"content-type": "application/json"})
            response = connection.getresponse()
            parts = []
            while piece := response.read1(65536):
                if not parts:
                    after_first()
                parts.append(piece)
            return response.status, {name.lower(): value for name, value in response.getheaders()}, parts
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60 * TIME_SCALE)
        self._folder.cleanup()


def text_of(parts, stream):
    body = b"".join(parts).decode()
    if not stream:
        return json.loads(body)["choices"][0]["text"]
    events = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        raise RuntimeError("the stream broke off")
    return "".join(choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"])


class TwoServers:
    def __init__(self, *more):
        self.arguments = [*setting.demo_arguments(), "--trusted_proxies", "127.0.0.1", *more]
        self.ports = free_ports(2)
        self.servers = [self.start(port) for port in self.ports]

    def start(self, port):
        return ServerProcess(setting.chorus, self.arguments, port=port)

    def generating(self):
        """Whether one of the servers generates an answer now."""
        return any(server.request("GET", "/v1/batch")[2]["sequences"] for server in self.servers)

    def answered(self, index):
        """How many completions the server has answered since it started."""
        return self.servers[index].metric("chorus_http_requests_total", route="/v1/completions")

    def restart(self, index):
        """Stops a server and starts it on the same port, as an upgrade does."""
        self.servers[index].signal()
        code = self.servers[index].wait_exit()
        self.servers[index] = self.start(self.ports[index])
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()


class Load:
    """Clients that ask without a pause until it is left. Every answer must be the one that a server gives alone."""

    def __init__(self, proxy, expected, clients=6):
        self.proxy, self.expected = proxy, expected
        self.answers, self.faults = 0, []
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]

    def _run(self, index):
        number = index
        while not self._ending.is_set():
            model, stream = MODELS[number % len(MODELS)], number % 2 == 0
            number += 1
            try:
                status, _, parts = self.proxy.ask({**BODY, "model": model, "stream": stream})
                fault = None if status == 200 and text_of(parts, stream) == self.expected[model] else (status, parts)
            except Exception as error:  # noqa: BLE001 whatever a client would see is a loss
                fault = error
            with self._lock:
                self.answers += 1
                if fault is not None:
                    self.faults.append((model, stream, fault))

    def wait_answers(self, count):
        """Waits for so many more answers."""
        expected = self.answers + count
        return wait_until(lambda: self.answers >= expected)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join()


def answers_of(server):
    return {model: server.request("POST", "/v1/completions", {**BODY, "model": model})[2]["choices"][0]["text"]
            for model in MODELS}


class Proxies(unittest.TestCase):
    def rolling_restart(self, packaged, *more):
        with TwoServers(*more) as both, Proxy(packaged, both.ports) as proxy:
            expected = answers_of(both.servers[0])
            with Load(proxy, expected) as load:
                for index in (0, 1):
                    self.assertTrue(load.wait_answers(20))
                    self.assertEqual(both.restart(index), 0)
                    # An upgrade waits until the proxy uses the server again.
                    self.assertTrue(wait_until(lambda: both.answered(index) > 0))
                self.assertTrue(load.wait_answers(20))
            self.assertEqual(load.faults, [])

    def test_nginx_loses_nothing_in_a_rolling_restart(self):
        self.rolling_restart("nginx/chorus.conf")

    def test_haproxy_loses_nothing_in_a_rolling_restart(self):
        self.rolling_restart("haproxy/haproxy.cfg", "--drain_delay", 2)

    def test_streams_pass_piece_by_piece(self):
        for packaged in ("nginx/chorus.conf", "haproxy/haproxy.cfg"):
            with self.subTest(packaged), TwoServers() as both, Proxy(packaged, both.ports) as proxy:
                body = {**BODY, "model": "base", "max_tokens": 900, "stream": True}
                # When the first few events arrive, the server must still generate the answer. On a busy machine this client
                # may look too late, so one of several tries must succeed. A proxy that collects events fails in all of them.
                for _ in range(20):
                    seen = []
                    status, headers, parts = proxy.ask(body, lambda: seen.append(both.generating()))
                    self.assertEqual(status, 200)
                    self.assertTrue(headers["content-type"].startswith("text/event-stream"))
                    self.assertTrue(b"".join(parts).endswith(b"data: [DONE]\n\n"))
                    if seen[0] and parts[0].count(b"data: ") <= 8:
                        break
                else:
                    self.fail(f"{packaged}: no event arrived while its answer was generated")

    def test_haproxy_keeps_an_adapter_on_its_server(self):
        marked = ("    option forwardfor\n", "    option forwardfor\n    http-response set-header x-served-by %s\n")
        with TwoServers() as both, Proxy("haproxy/haproxy.cfg", both.ports, [marked]) as proxy:
            # On a busy machine a check of a server's health may come too late, and its adapters move to the other one for a
            # second. So one of several tries must succeed; without the hash of the model none would.
            for _ in range(10):
                served = {}
                for model in MODELS * 4:
                    status, headers, _ = proxy.ask({**BODY, "model": model})
                    self.assertEqual(status, 200)
                    served.setdefault(model, set()).add(headers["x-served-by"])
                moved = [model for model, servers in served.items() if len(servers) != 1]
                if not moved:
                    break
            self.assertEqual(moved, [])
            self.assertEqual({name for servers in served.values() for name in servers}, {"first", "second"})
