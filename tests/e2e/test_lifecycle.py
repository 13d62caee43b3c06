"""Start of the server, new and broken adapters, overload, cancellation, stop."""

import concurrent.futures
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import openai

import setting
from server_process import TIME_SCALE, ServerProcess, soon, unless_slow, wait_until

LONG = {"model": "base", "prompt": "the", "max_tokens": 900, "temperature": 0, "extra_body": {"ignore_eos": True}}


def error_line(arguments, preexec=None):
    """Returns exit status and last error line of a server that does not start."""
    done = subprocess.run([setting.chorus, "serve", *map(str, arguments), "--port", "0"], capture_output=True,
                          text=True, timeout=120 * TIME_SCALE, preexec_fn=preexec)
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return done.returncode, lines[-1] if lines else done.stderr


def copy_of_base(name):
    target = setting.scratch() / name
    shutil.copytree(setting.demo / "base", target)
    return target


class Start(unittest.TestCase):
    def test_health_is_answered(self):
        server = setting.shared_server()
        self.assertEqual(server.request("GET", "/v1/health/live")[0], 200)
        self.assertEqual(server.request("GET", "/v1/health/ready")[0], 200)
        for path in ("/health", "/ping"):
            self.assertEqual(server.request("GET", path)[2], server.request("GET", "/v1/health/ready")[2])
        release = server.request("GET", "/v1/version")[2]["release"]
        self.assertEqual(server.request("GET", "/version")[2], {"version": release})
        self.assertTrue(server.wait_logged("weights"))

    def test_engine_is_built_once(self):
        cache = setting.scratch() / "once"
        arguments = [setting.demo / "base", "--cache_dir", cache]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            servers = list(pool.map(lambda _: ServerProcess(setting.chorus, arguments), range(2)))
        self.assertEqual(sum("prepared in" in server.log for server in servers), 1)
        for server in servers:
            self.assertEqual(server.stop(), 0)
        engines = [path for path in (cache / "engines").iterdir() if path.is_dir()]
        self.assertEqual(len(engines), 1)
        rank = engines[0] / "engine" / "rank0.engine"
        data = bytearray(rank.read_bytes())
        data[len(data) // 2] ^= 0xFF
        rank.write_bytes(data)
        with ServerProcess(setting.chorus, arguments) as server:
            self.assertIn("building again", server.log)

    def test_full_disk(self):
        cache = setting.scratch() / "full"
        limit = 1 << 20
        code, line = error_line([setting.demo / "base", "--cache_dir", cache],
                                lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(code, 1)
        self.assertIn("--cache_dir", line)
        self.assertEqual([path.name for path in (cache / "engines").iterdir() if path.is_dir()], [])

    def test_bad_input_is_one_line(self):
        broken = copy_of_base("truncated")
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        cache = ["--cache_dir", setting.scratch() / "bad"]
        for arguments in ([broken, *cache], [setting.scratch() / "nothing", *cache], ["--no_such_flag"], [],
                          [setting.demo / "base", *cache, "--lora_dir", "/nowhere"],
                          [setting.demo / "base", *cache, "--isa", "z80"]):
            with self.subTest(arguments=arguments):
                code, line = error_line(arguments)
                self.assertEqual(code, 2)
                self.assertTrue(line.startswith("chorus: error: "), line)

    def test_exit_codes_tell_wrong_use_from_a_failure(self):
        cache = ["--cache_dir", setting.scratch() / "cache", "--dtype", "float32"]
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = subprocess.run([setting.chorus, "serve", setting.demo / "base", *map(str, cache), "--port", str(port)],
                                  capture_output=True, text=True, timeout=120 * TIME_SCALE)
        self.assertEqual(done.returncode, 1, "the port may be free later")
        self.assertIn(f"port {port}", done.stderr)
        code, line = error_line([setting.demo / "base", *cache, "--lora-dri", "x"])
        self.assertEqual(code, 2)
        self.assertIn("--lora-dri: no flag of chorus serve; did you mean --lora_dir?", line)


class Adapters(unittest.TestCase):
    def test_new_ones_are_found_and_broken_ones_left_out(self):
        source = setting.scratch() / "adapters"
        names = setting.adapter_names()
        shutil.copytree(setting.demo / "adapters" / names[0], source / names[0])
        shutil.copytree(setting.demo / "adapters" / names[1], source / "broken")
        (source / "broken" / "adapter_model.safetensors").write_bytes(b"not weights")
        arguments = [setting.demo / "base", "--cache_dir", setting.scratch() / "cache", "--dtype", "float32"]
        env = {"NIM_PEFT_SOURCE": str(source), "NIM_PEFT_REFRESH_INTERVAL": "1"}
        with ServerProcess(setting.chorus, arguments, env=env) as server:
            def served():
                return [model["id"] for model in server.request("GET", "/v1/models")[2]["data"]]
            self.assertEqual(served(), ["base", names[0]])
            self.assertIn("adapter left out", server.log)
            staged = setting.scratch() / "staged"
            shutil.copytree(setting.demo / "adapters" / names[2], staged)
            staged.rename(source / "late")
            self.assertTrue(wait_until(lambda: "late" in served()))
            row = next(row for row in setting.expected() if row["adapter"] == names[2])
            answer = setting.client(server).chat.completions.create(
                model="late", messages=[{"role": "user", "content": row["prompt"]}], temperature=0)
            self.assertEqual(answer.choices[0].message.content, row["text"])

    def test_named_and_single_adapters(self):
        """--lora_dir NAME=DIRECTORY, a directory that is an adapter itself, and one without any adapter."""
        adapters, empty = setting.demo / "adapters", setting.scratch() / "no-adapters"
        empty.mkdir()
        arguments = [setting.demo / "base", "--cache_dir", setting.scratch() / "cache", "--dtype", "float32",
                     "--lora-dir", f"loud={adapters / 'shout'}", "--lora_dir", adapters / "roman",
                     "--lora_dir", empty, "--lora-modules", f"a={adapters / 'sum'}", f"b={adapters / 'json'}"]
        with ServerProcess(setting.chorus, arguments) as server:
            self.assertEqual({model["id"] for model in server.request("GET", "/v1/models")[2]["data"]},
                             {"base", "loud", "roman", "a", "b"})
            self.assertIn(f"{empty}: no adapter found", server.log)
            row = next(row for row in setting.expected() if row["adapter"] == "shout")
            answer = setting.client(server).chat.completions.create(
                model="loud", messages=[{"role": "user", "content": row["prompt"]}], temperature=0)
            self.assertEqual(answer.choices[0].message.content, row["text"])

    def test_a_scan_adds_replaces_and_removes_as_asked(self):
        names = setting.adapter_names()
        row = next(row for row in setting.expected() if row["adapter"] == names[2])
        for refresh in ("add", "replace", "sync"):
            with self.subTest(refresh=refresh):
                source = setting.scratch() / f"refreshed-{refresh}"
                aside = setting.scratch() / f"aside-{refresh}"
                for name in names[:2]:
                    shutil.copytree(setting.demo / "adapters" / name, source / name)
                arguments = [setting.demo / "base", "--dtype", "float32", "--cache_dir", setting.scratch() / "cache",
                             "--lora_dir", source, "--lora_refresh_interval", "1",
                             "--lora_refresh", refresh]
                with ServerProcess(setting.chorus, arguments) as server:
                    def status(name):
                        listed = server.request("GET", f"/v1/models/{name}")[0]
                        answered = server.request("POST", "/v1/completions",
                                                  {"model": name, "prompt": "a", "max_tokens": 1})[0]
                        return listed, answered

                    def until(name, expected):
                        wait_until(lambda: status(name) == expected)
                        self.assertEqual(status(name), expected)

                    def answer(name):
                        try:
                            return setting.client(server).chat.completions.create(
                                model=name, messages=[{"role": "user", "content": row["prompt"]}],
                                temperature=0).choices[0].message.content
                        except openai.NotFoundError:
                            return None
                    self.assertEqual(status(names[0]), (200, 200))
                    old = answer(names[1])
                    self.assertNotEqual(old, row["text"])
                    for copy in (".new", ".late"):
                        shutil.copytree(setting.demo / "adapters" / names[2], aside.with_suffix(copy))
                    (source / names[0]).rename(aside)
                    (source / names[1]).rename(aside.with_suffix(".old"))
                    aside.with_suffix(".new").rename(source / names[1])
                    aside.with_suffix(".late").rename(source / "late")
                    until("late", (200, 200))
                    if refresh == "sync":
                        until(names[0], (404, 404))
                    if refresh == "add":
                        time.sleep(3)  # two more scans
                    else:
                        # A scan may have come between the two renames; then sync removes the name for a moment.
                        wait_until(lambda: answer(names[1]) not in (old, None))
                    self.assertEqual(answer(names[1]), old if refresh == "add" else row["text"])
                    if refresh != "sync":
                        self.assertEqual(status(names[0]), (200, 200), "its weights are in memory")
                    aside.rename(source / names[0])
                    until(names[0], (200, 200))

    def test_a_signal_scans_for_adapters(self):
        names = setting.adapter_names()
        source = setting.scratch() / "on-signal"
        shutil.copytree(setting.demo / "adapters" / names[0], source / names[0])
        with ServerProcess(setting.chorus, [setting.demo / "base", "--dtype", "float32", "--cache_dir",
                                            setting.scratch() / "cache", "--lora_dir", source]) as server:
            for name in names[1:3]:
                shutil.copytree(setting.demo / "adapters" / name, source / f".{name}")
                (source / f".{name}").rename(source / name)
                time.sleep(1.5)
                self.assertEqual(server.request("GET", f"/v1/models/{name}")[0], 404, "there is no interval")
                server.signal(signal.SIGHUP)
                wait_until(lambda: server.request("GET", f"/v1/models/{name}")[0] == 200)
                self.assertEqual(server.request("POST", "/v1/completions",
                                                {"model": name, "prompt": "a", "max_tokens": 1})[0], 200)
            server.signal()
            self.assertEqual(server.wait_exit(), 0)

    def test_a_server_without_files_ends_at_a_hangup(self):
        # Under nohup the tests ignore the signal, and a child would inherit that.
        with ServerProcess(setting.chorus, [setting.demo / "base", "--dtype", "float32", "--cache_dir",
                                            setting.scratch() / "cache"],
                           preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as server:
            server.signal(signal.SIGHUP)
            self.assertEqual(server.wait_exit(), -signal.SIGHUP)

    def test_links_stay_inside(self):
        names = setting.adapter_names()
        source = setting.scratch() / "linked"
        shutil.copytree(setting.demo / "adapters" / names[0], source / names[0])
        (source / "alias").symlink_to(names[0])
        shutil.copytree(setting.demo / "adapters" / names[1], source / "thief")
        (source / "thief" / "adapter_model.safetensors").unlink()
        (source / "thief" / "adapter_model.safetensors").symlink_to(f"../{names[0]}/adapter_model.safetensors")
        for links, expected in (("inside", {names[0]}), ("follow", {names[0], "alias", "thief"})):
            with self.subTest(links=links):
                arguments = [setting.demo / "base", "--dtype", "float32", "--cache_dir", setting.scratch() / "cache",
                             "--lora_dir", source, "--lora_dir_links", links]
                with ServerProcess(setting.chorus, arguments) as server:
                    served = {model["id"] for model in server.request("GET", "/v1/models")[2]["data"]}
                    self.assertEqual(served - {"base", "thief"}, expected - {"thief"})
                    self.assertEqual("a link that leads" in server.log, links == "inside")


class Load(unittest.TestCase):
    def test_queue_limit_and_cancellation(self):
        arguments = [*setting.demo_arguments(), "--max_queue_size", "2", "--max_batch_size", "1"]
        with ServerProcess(setting.chorus, arguments) as server:
            client = setting.client(server)

            def aborted():
                return server.metric("request_finish_total", finished_reason="abort")

            # If this client is slow, streams end before the queue is full or before the client leaves them. So one of several
            # tries must succeed.
            for _ in range(5):
                before, streams, refused = aborted(), [client.completions.create(**LONG, stream=True)], None
                next(iter(streams[0]))
                for _ in range(8):
                    try:
                        streams.append(client.completions.create(**LONG, stream=True))
                    except openai.RateLimitError as error:
                        refused = error
                        break
                for stream in streams:
                    stream.close()
                answer = client.with_options(max_retries=100).completions.create(
                    model="base", prompt="two dogs", max_tokens=4, temperature=0)
                self.assertEqual(answer.usage.completion_tokens, 4)
                self.assertTrue(wait_until(lambda: server.active() == 0))
                if refused is not None and aborted() - before >= 2:
                    break
            self.assertIsNotNone(refused)
            self.assertEqual(refused.type, "rate_limit_error")
            self.assertIn("retry-after-ms", refused.response.headers)
            self.assertGreaterEqual(aborted() - before, 2, "left streams give up their places")

    def test_many_left_streams(self):
        server = setting.shared_server()
        client = setting.client(server)
        for _ in range(40):
            stream = client.completions.create(**LONG, stream=True)
            next(iter(stream))
            stream.close()
        row = setting.expected(1)[0]
        answer = client.completions.create(model="base", prompt=row["prompt_ids"], max_tokens=64, temperature=0)
        self.assertEqual(answer.choices[0].text, row["text"])


class Stop(unittest.TestCase):
    def drained(self, signals, arguments=(), choices=1):
        """Sends signals while a long stream runs. Returns exit status, the stream, and whether it broke off."""
        with ServerProcess(setting.chorus, [*setting.demo_arguments(), *arguments]) as server:
            body = {"model": "base", "prompt": "the", "max_tokens": 900, "temperature": 0, "ignore_eos": True, "n": choices}
            connection = server.connect(timeout=300)
            connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}),
                               {"content-type": "application/json"})
            answer = connection.getresponse()
            pieces, broken = [answer.readline()], []

            def read():
                try:
                    while piece := answer.read1(65536):
                        pieces.append(piece)
                except (OSError, http.client.HTTPException) as error:
                    broken.append(error)
            reader = threading.Thread(target=read)
            reader.start()
            for number in signals:
                server.signal(number)
                # A second signal before the first was noticed would be lost.
                self.assertTrue(server.wait_logged("shutting down: running requests may finish"))
            code = server.wait_exit(timeout=300)
            reader.join(timeout=60 * TIME_SCALE)
            connection.close()
            return code, b"".join(pieces).decode(), bool(broken)

    def test_term_lets_running_requests_finish(self):
        code, stream, broken = self.drained([signal.SIGTERM], ["--drain_timeout", 250 * TIME_SCALE])
        self.assertEqual((code, broken), (0, False))
        self.assertIn('"finish_reason":"length"', stream)
        self.assertTrue(stream.endswith("data: [DONE]\n\n"), stream[-200:])

    def test_second_signal_ends_at_once(self):
        for _ in range(3):  # if this client is slow, the stream may end before the second signal
            code, stream, broken = self.drained([signal.SIGTERM, signal.SIGTERM], ["--max_choices", "64"], choices=64)
            if code != 0 and "[DONE]" not in stream:
                break
        self.assertEqual(code, -signal.SIGTERM)
        self.assertNotIn("[DONE]", stream)
        self.assertTrue(broken, "the stream breaks off")

    def test_interrupt_of_an_idle_server(self):
        def seconds_to_end():
            with ServerProcess(setting.chorus, setting.demo_arguments()) as server:
                begin = time.monotonic()
                server.signal(signal.SIGINT)
                self.assertEqual(server.wait_exit(), 0)
                return time.monotonic() - begin
        self.assertTrue(soon(seconds_to_end, 5))

    def test_grace_period_ends(self):
        # One thread, so that the stream lasts longer than the timeout on every processor. If this client is slow, the
        # stream may end before the signal.
        arguments = ["--drain_timeout", "4", "--max_choices", "64", "--threads", "1"]
        for _ in range(4):
            code, stream, _ = self.drained([signal.SIGTERM], arguments, choices=64)
            self.assertEqual(code, 0)
            if "error" in stream:
                break
        self.assertIn("send the request again", stream)
        self.assertTrue(stream.endswith("data: [DONE]\n\n"), stream[-200:])

    def test_requests_that_never_arrive_are_not_waited_for(self):
        unless_slow(self.never_arrive, 5)  # the head of a request must come within ten seconds

    def never_arrive(self, _):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        drain_timeout = 100 * TIME_SCALE
        with ServerProcess(setting.chorus, [*setting.demo_arguments(), "--drain_timeout", drain_timeout]) as server:
            def received():
                return server.metric("chorus_http_received_bytes_total")
            first, before = received(), received()
            clients, sent_bytes, polls = [], 0, 0
            for sent in (b"GET / HT", head, head + b"{"):
                client = socket.create_connection((server.host, server.port), timeout=drain_timeout)
                client.sendall(sent)
                clients.append(client)
                sent_bytes += len(sent)

            def arrived():
                nonlocal polls
                polls += 1
                return received() >= before + polls * (before - first) + sent_bytes
            self.assertTrue(wait_until(arrived))
            begin = time.monotonic()
            server.signal()
            for client in clients:
                self.assertIn(b"HTTP/1.1 503 ", client.recv(4096))
            self.assertEqual(server.wait_exit(), 0)
            self.assertLess(time.monotonic() - begin, drain_timeout / 2)
            for client in clients:
                client.close()

    def test_a_proxy_has_time_to_notice(self):
        # Seconds. If the machine is busy, the requests may come too late for a short delay.
        self.assertTrue(any(self.serves_within_the_delay(delay * TIME_SCALE) for delay in (2, 8, 32)))

    def serves_within_the_delay(self, delay):
        """Whether all requests were sent within the delay. Then they must be answered as the test says."""
        body = {"model": "base", "prompt": "two", "max_tokens": 2}
        with ServerProcess(setting.chorus, [*setting.demo_arguments(), "--drain_delay", delay]) as server:
            kept = server.connect()
            kept.request("GET", "/v1/models")
            answer = kept.getresponse()
            answer.read()
            self.assertEqual(answer.getheader("connection"), "keep-alive")
            begin = time.monotonic()

            def late():
                return time.monotonic() - begin >= delay
            server.signal()
            try:
                while server.request("GET", "/v1/health/ready")[0] == 200:
                    if time.monotonic() - begin >= delay / 2:
                        return False
                kept.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
                answer = kept.getresponse()
                on_kept = answer.status, answer.getheader("connection")
                status, headers, _ = server.request("POST", "/v1/completions", body)
                live = server.request("GET", "/v1/health/live")[0]
            except (OSError, http.client.HTTPException):
                if late():
                    return False
                raise
            if late():
                return False
            self.assertEqual(on_kept, (200, "close"))
            self.assertEqual((status, headers["connection"]), (200, "close"))
            self.assertEqual(live, 200)
            self.assertEqual(server.wait_exit(), 0)
            self.assertGreaterEqual(time.monotonic() - begin, delay)
            return True

    def test_the_service_manager_is_told(self):
        name = f"chorus-e2e-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind("\0" + name)
            manager.settimeout(60 * TIME_SCALE)

            def next_but(skipped):
                while (message := manager.recv(4096).decode()) == skipped:
                    pass
                return message
            # The socket holds ten messages, and a busy machine may stall this test for seconds: so one comes each second.
            environment = {"NOTIFY_SOCKET": "@" + name, "WATCHDOG_USEC": "2000000"}
            with ServerProcess(setting.chorus, setting.demo_arguments(), environment) as server:
                loading = manager.recv(4096).decode()
                self.assertIn("EXTEND_TIMEOUT_USEC=30000000", loading)
                self.assertEqual(next_but(loading), f"READY=1\nSTATUS=Serving at {server.url}")  # a slow start repeats it
                self.assertEqual(manager.recv(4096), b"WATCHDOG=1")
                server.signal(signal.SIGHUP)
                self.assertRegex(next_but("WATCHDOG=1"), r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
                self.assertEqual(manager.recv(4096).decode(), f"READY=1\nSTATUS=Serving at {server.url}")
                server.signal()
                self.assertEqual(server.wait_exit(), 0)
            message = next_but("WATCHDOG=1")
            self.assertTrue(message.startswith("STOPPING=1\nSTATUS="), message)

    def test_the_limit_on_open_files_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = min(hard, 3000)
        with ServerProcess(setting.chorus, setting.demo_arguments(),
                           preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, wanted))) as server:
            with open(f"/proc/{server.process.pid}/limits", encoding="ascii") as lines:
                limit = next(line for line in lines if line.startswith("Max open files")).split()
        self.assertEqual(limit[3:5], [str(wanted)] * 2)
