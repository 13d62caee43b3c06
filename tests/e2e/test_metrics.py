"""Metrics, the live batch and the log of a server."""

import json
import socket
import time
import unittest

from prometheus_client.parser import text_string_to_metric_families

import setting
from server_process import ServerProcess, wait_until

ASKED = {"model": "base", "prompt": "two dogs", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(setting.chorus, [*setting.demo_arguments(), "--log_format", "json"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def scrape(self, path="/v1/metrics", server=None):
        connection = (server or self.server).connect()
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
        self.assertEqual(response.status, 200)
        self.assertTrue(response.headers["content-type"].startswith("text/plain"))
        samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, *sorted(sample.labels.items()))
                self.assertNotIn(key, samples)
                samples[key] = sample.value
        return samples

    def growth(self, before, name, **labels):
        after = self.scrape()
        def total(samples):
            return sum(value for key, value in samples.items() if key[0] == name and set(labels.items()) <= set(key[1:]))
        return total(after) - total(before)

    def test_counters_grow_by_what_was_asked(self):
        # Steps of an earlier test's cancelled requests may still run.
        self.assertTrue(wait_until(self.server.idle))
        before = self.scrape("/metrics")
        usage = [self.server.request("POST", "/v1/completions", {**ASKED, "model": model})[2]["usage"]
                 for model in ("base", "roman", "roman")]
        self.assertEqual(self.growth(before, "generation_tokens_total"), sum(u["completion_tokens"] for u in usage))
        self.assertEqual(self.growth(before, "vllm:prompt_tokens_total"), sum(u["prompt_tokens"] for u in usage))
        self.assertEqual(self.growth(before, "vllm:request_success_total", finished_reason="length"), 3)
        self.assertEqual(self.growth(before, "chorus_model_choices_total", model="roman"), 2)
        self.assertEqual(self.growth(before, "e2e_request_latency_seconds_count"), 3)
        self.assertEqual(self.growth(before, "vllm:request_queue_time_seconds_count"), 3)
        # Steps are counted after their tokens were delivered.
        wait_until(lambda: self.growth(before, "chorus_step_generated_tokens_total") >= 12)
        self.assertEqual(self.growth(before, "chorus_step_generated_tokens_total"), 12)
        self.assertEqual(self.growth(before, "chorus_http_requests_total", route="/v1/completions", status="200"), 3)
        self.assertGreater(self.growth(before, "chorus_step_seconds_total", phase="network"), 0)

    def test_made_up_names_make_no_series(self):
        def invent(i):
            self.assertEqual(self.server.request("POST", "/v1/completions", {**ASKED, "model": f"invented-{i}"})[0], 404)
            self.assertEqual(self.server.request("GET", f"/v1/models/invented-{i}")[0], 404)
            self.assertEqual(self.server.request("GET", f"/invented-{i}")[0], 404)
            self.assertEqual(self.server.request(f"INVENTED{i}", f"/invented-{i}")[0], 404)
            self.assertEqual(self.server.request(f"INVENTED{i}", "/v1/completions")[0], 405)
        invent(0)
        self.scrape()  # makes the series of the scrapes
        before = self.scrape()
        for i in range(1, 21):
            invent(i)
        after = self.scrape()
        self.assertEqual(set(after), set(before))
        self.assertFalse([key for key in after if "invented" in str(key).lower()])
        count = "chorus_http_requests_total"
        counted = {key: after[key] - before[key] for key in after if key[0] == count and after[key] != before[key]}
        scraped = (count, ("method", "GET"), ("route", "/v1/metrics"), ("status", "200"))
        self.assertEqual(counted, {
            (count, ("method", "POST"), ("route", "/v1/completions"), ("status", "404")): 20,
            (count, ("method", "GET"), ("route", "/v1/models/"), ("status", "404")): 20,
            (count, ("method", "GET"), ("route", "none"), ("status", "404")): 20,
            (count, ("method", "other"), ("route", "none"), ("status", "404")): 20,
            (count, ("method", "other"), ("route", "/v1/completions"), ("status", "405")): 20,
            scraped: 1})
        grown = {key for key in after if key[0].startswith(("chorus_model_", "vllm:request_", "request_", "generation_"))
                 and after[key] != before[key]}
        self.assertEqual(grown, set(), "what is refused is no choice")

    def test_loads_of_adapters_are_timed(self):
        with ServerProcess(setting.chorus, setting.demo_arguments()) as server:
            def samples():
                return self.scrape(server=server)
            self.assertEqual(samples()[("chorus_adapter_load_seconds_count",)], 0)
            names = setting.adapter_names()[:3]
            begin = time.monotonic()
            for name in [*names, *names]:
                self.assertEqual(server.request("POST", "/v1/completions", {**ASKED, "model": name})[0], 200)
            wait_until(lambda: samples()[("chorus_adapter_load_seconds_count",)] >= len(names))
            after = samples()
            took = time.monotonic() - begin
            self.assertEqual(after[("chorus_adapter_load_seconds_count",)], len(names))
            self.assertEqual(after[("chorus_adapter_loads_total", ("outcome", "loaded"))], len(names))
            self.assertGreater(after[("chorus_adapter_load_seconds_sum",)], 0)
            self.assertLess(after[("chorus_adapter_load_seconds_sum",)], took)
            buckets = [value for key, value in after.items() if key[0] == "chorus_adapter_load_seconds_bucket"]
            self.assertEqual(max(buckets), len(names))

    def test_one_series_lists_the_loaded_adapters(self):
        self.assertEqual(self.server.request("POST", "/v1/completions", {**ASKED, "model": "roman"})[0], 200)

        def is_listed():
            series = [(dict(key[1:]), value) for key, value in self.scrape().items() if key[0] == "vllm:lora_requests_info"]
            self.assertEqual(len(series), 1)
            labels, value = series[0]
            self.assertEqual(set(labels), {"max_lora", "running_lora_adapters", "waiting_lora_adapters"})
            self.assertLess(abs(value - time.time()), 60)
            return "roman" in labels["running_lora_adapters"].split(",")
        self.assertTrue(wait_until(is_listed))

    def test_the_live_batch(self):
        status, _, idle = self.server.request("GET", "/v1/batch")
        self.assertEqual(status, 200)
        self.assertGreater(idle["kv_cache"]["total_blocks"], 0)
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**ASKED, "model": "roman", "max_tokens": 200, "stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read(10)
        batch = self.server.request("GET", "/v1/batch")[2]
        if batch["sequences"]:  # unless the stream has ended already
            self.assertEqual(batch["sequences"][0]["model"], "roman")
        response.read()

    def lines(self, request_id):
        found = []
        for line in list(self.server.log_lines):
            entry = json.loads(line)
            self.assertLessEqual({"timestamp", "level"}, set(entry))
            if entry.get("request_id") == request_id:
                found.append(entry)
        return found

    def lines_of(self, request_id):
        wait_until(lambda: self.lines(request_id))
        time.sleep(0.2)  # a second line would come now
        return self.lines(request_id)

    def ask(self, method, path, body, request_id, trace=None):
        connection = self.server.connect()
        headers = {"Content-Type": "application/json", "x-request-id": request_id}
        if trace:
            headers["traceparent"] = trace
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        response.read()
        self.assertEqual(response.headers["x-request-id"], request_id)
        return response.status

    def test_one_access_line_per_request(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        self.assertEqual(self.ask("POST", "/v1/completions?secret=1", {**ASKED, "model": "roman"}, "line-1", trace), 200)
        self.assertEqual(self.ask("GET", "/nowhere", None, "line-2"), 404)
        self.assertEqual(self.ask("POST", "/v1/completions", {**ASKED, "model": "invented"}, "line-3"), 404)
        (answered,) = self.lines_of("line-1")
        self.assertEqual(answered["trace_id"], "0af7651916cd43dd8448eb211c80319c")
        self.assertEqual((answered["route"], answered["status"], answered["model"]), ("/v1/completions", 200, "roman"))
        self.assertEqual((answered["generated_tokens"], answered["finish_reason"]), (4, "length"))
        self.assertEqual(len(answered["adapter_content_hash"]), 64)
        for number in ("line-2", "line-3"):
            (refused,) = self.lines_of(number)
            self.assertEqual(refused["status"], 404)
            self.assertNotIn("model", refused)
        for secret in ("secret", "two dogs", "invented", "nowhere"):
            self.assertNotIn(secret, self.server.log)

    def test_a_disconnect_has_one_line_too(self):
        body = json.dumps({**ASKED, "prompt": [5] * 20, "max_tokens": 900, "n": 2, "stream": True}).encode()
        for number in range(4, 9):  # the answer may be complete before this client leaves, if the client is slow
            before = self.scrape()
            with socket.create_connection((self.server.host, self.server.port)) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"x-request-id: line-%d\r\nContent-Length: %d\r\n\r\n" % (number, len(body)) + body)
                client.recv(100)
            (line,) = self.lines_of(f"line-{number}")
            if line["disconnected"]:
                break
        self.assertEqual((line["disconnected"], line["finish_reason"]), (True, "abort"))
        self.assertEqual(self.growth(before, "request_finish_total", finished_reason="abort"), 2)
        self.assertEqual(self.growth(before, "chorus_http_disconnects_total"), 1)
