"""Limits on what one key or one adapter uses, as the openai client sees them."""

import datetime
import threading
import unittest

import anthropic
import openai

import setting
from server_process import TIME_SCALE, ServerProcess, unless_slow

KEYS = """
keys:
  - {name: few, key: key-of-few-0, limits: {requests_per_minute: 2}}
  - {name: few more, key: key-of-few-1, limits: {requests_per_minute: 2}}
  - {name: few others, key: key-of-few-2, limits: {requests_per_minute: 2}}
  - {name: tokens, key: key-of-tokens, limits: {tokens_per_minute: 20}}
  - {name: both, key: key-of-both, limits: {requests_per_minute: 3, tokens_per_minute: 600}}
  - {name: one, key: key-of-one, limits: {concurrent_requests: 1}}
  - {name: free, key: key-of-free}
adapters:
  - {name: "rom*", limits: {requests_per_minute: 3}}
  - {name: "ger*", limits: {requests_per_minute: 3}}
  - {name: "sum", limits: {requests_per_minute: 3}}
"""


def now():
    return datetime.datetime.now(datetime.timezone.utc)


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        file = setting.scratch() / "limits.yaml"
        file.write_text(KEYS)
        cls.server = ServerProcess(setting.chorus, [*setting.demo_arguments(), "--api_keys_file", file,
                                                    "--limit_requests_per_minute", "600"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def client(self, key, max_retries=0):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=max_retries,
                             timeout=60 * TIME_SCALE)

    def ask(self, key, model="base", max_tokens=2):
        return self.client(key).completions.with_raw_response.create(
            model=model, prompt="two cats", max_tokens=max_tokens, extra_body={"ignore_eos": True})

    def refused(self, call):
        with self.assertRaises(openai.RateLimitError) as refusal:
            call()
        self.assertEqual(refusal.exception.code, "rate_limit_exceeded")
        return refusal.exception

    def test_requests_per_minute_over_all_routes(self):
        # A request comes back after 30 s.
        unless_slow(lambda number: self.requests_per_minute(f"key-of-few-{number}"), seconds=20, tries=3)

    def requests_per_minute(self, key):
        begun = now()
        headers = self.ask(key).headers
        took = (now() - begun).total_seconds()
        self.assertEqual(headers["x-ratelimit-limit-requests"], "2")
        self.assertEqual(headers["x-ratelimit-remaining-requests"], "1")
        self.assertRegex(headers["x-ratelimit-reset-requests"], r"^[\d.]+s$")
        self.assertTrue(29.9 - took <= float(headers["x-ratelimit-reset-requests"][:-1]) <= 30)
        client = self.client(key)
        client.chat.completions.create(model="base", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
        refusals = [
            self.refused(lambda: self.ask(key)),
            self.refused(lambda: client.chat.completions.create(
                model="base", messages=[{"role": "user", "content": "hi"}], max_tokens=1, stream=True)),
            self.refused(lambda: client.responses.create(model="base", input="hi", max_output_tokens=16)),
        ]
        for refusal in refusals:
            self.assertEqual(refusal.type, "requests")
            self.assertIn("for this API key on requests per minute: limit 2, used 2", str(refusal))
            self.assertIn("'requests_per_minute' of the key in --api_keys_file", str(refusal))
            wait = int(refusal.response.headers["retry-after-ms"])
            self.assertTrue(0 < wait <= 30000, wait)
            self.assertEqual(int(refusal.response.headers["retry-after"]), -(-wait // 1000))
        with self.assertRaises(anthropic.RateLimitError) as refusal:
            self.message(key)
        self.assertEqual(refusal.exception.body["error"]["type"], "rate_limit_error")
        headers = refusal.exception.response.headers
        self.assertEqual(headers["anthropic-ratelimit-requests-limit"], "2")
        self.assertEqual(headers["anthropic-ratelimit-requests-remaining"], "0")
        self.resets_in(headers["anthropic-ratelimit-requests-reset"], begun, 60)
        self.assertIn(int(headers["retry-after"]), range(1, 31))
        self.assertEqual(self.ask("key-of-free").headers["x-ratelimit-limit-requests"], "600")

    def message(self, key, max_retries=0):
        client = anthropic.Anthropic(base_url=self.server.url, api_key=key, max_retries=max_retries, timeout=60 * TIME_SCALE)
        return client.messages.with_raw_response.create(
            model="base", max_tokens=2, messages=[{"role": "user", "content": "hi"}])

    def resets_in(self, text, begun, seconds):
        """Checks a time of RFC 3339 that lies so many seconds after some time since `begun`. It is rounded up to a second."""
        self.assertRegex(text, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        reset, wait = datetime.datetime.fromisoformat(text.replace("Z", "+00:00")), datetime.timedelta(seconds=seconds)
        self.assertTrue(begun + wait <= reset + datetime.timedelta(seconds=1), text)
        self.assertTrue(reset <= now() + wait + datetime.timedelta(seconds=1), text)

    def test_headers_of_anthropic(self):
        begun = now()
        answer = self.message("key-of-both")
        used = answer.parse().usage
        self.assertEqual(answer.headers["anthropic-ratelimit-requests-limit"], "3")
        self.assertEqual(answer.headers["anthropic-ratelimit-requests-remaining"], "2")
        self.resets_in(answer.headers["anthropic-ratelimit-requests-reset"], begun, 20)
        self.assertEqual(answer.headers["anthropic-ratelimit-tokens-limit"], "600")
        prompt = used.input_tokens + used.cache_read_input_tokens
        self.assertEqual(answer.headers["anthropic-ratelimit-tokens-remaining"], str(600 - prompt))
        self.resets_in(answer.headers["anthropic-ratelimit-tokens-reset"], begun, prompt / 10)
        for part in ("limit", "remaining"):
            for kind in ("requests", "tokens"):
                self.assertEqual(answer.headers[f"anthropic-ratelimit-{kind}-{part}"],
                                 answer.headers[f"x-ratelimit-{part}-{kind}"])
        self.assertFalse([name for name in self.ask("key-of-both").headers if name.startswith("anthropic")])

    def test_the_anthropic_client_waits_and_tries_again(self):
        stream = self.client("key-of-one").completions.create(
            model="base", prompt="two cats", max_tokens=200, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        threading.Timer(0.2, stream.close).start()
        self.assertEqual(self.message("key-of-one", max_retries=50).parse().role, "assistant")

    def test_tokens_per_minute(self):
        answer = self.ask("key-of-tokens", max_tokens=10)
        self.assertEqual(answer.parse().usage.completion_tokens, 10)
        prompt = answer.parse().usage.prompt_tokens
        self.assertEqual(answer.headers["x-ratelimit-remaining-tokens"], str(20 - prompt))
        for _ in range(20):  # a token comes back each 3 s
            try:
                self.ask("key-of-tokens", max_tokens=10)
            except openai.RateLimitError as refusal:
                self.assertEqual((refusal.type, refusal.code), ("tokens", "rate_limit_exceeded"))
                self.assertIn("tokens per minute: limit 20", str(refusal))
                break
        else:
            self.fail("never refused")
        refusal = self.refused(lambda: self.client("key-of-tokens", max_retries=5).completions.create(
            model="base", prompt="two cats " * 30, max_tokens=1))
        self.assertIn("Request too large", str(refusal))
        self.assertEqual(refusal.response.headers["x-should-retry"], "false")

    def test_concurrent_requests(self):
        stream = self.client("key-of-one").completions.create(
            model="base", prompt="two cats", max_tokens=200, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        refusal = None
        try:
            self.ask("key-of-one")
        except openai.RateLimitError as error:
            refusal = error
        stream.close()
        if refusal is not None:  # otherwise the stream was complete before the second request came
            self.assertIn("concurrent requests: limit 1, used 1", str(refusal))
        # A client that retries gets its answer, however many of its requests come at once.
        answers = []

        def ask():
            answers.append(self.client("key-of-one", max_retries=50).completions.create(
                model="base", prompt="two cats", max_tokens=2).choices[0].text)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 4)
        self.assertEqual(len(set(answers)), 1)

    def test_an_adapter_is_limited_over_all_keys(self):
        # A request comes back after 20 s.
        unless_slow(lambda number: self.adapter_is_limited(("roman", "german", "sum")[number]), seconds=15, tries=3)

    def adapter_is_limited(self, name):
        self.ask("key-of-free", name)
        self.ask("key-of-one", name)
        self.client("key-of-free").completions.create(
            model="base", prompt="two cats", max_tokens=1, extra_body={"adapters": [{"name": name, "weight": 1.0}]})
        refusal = self.refused(lambda: self.ask("key-of-free", name))
        self.assertIn(f"for the adapter `{name}` on requests per minute: limit 3, used 3", str(refusal))
        self.assertIn("'requests_per_minute' of the adapter in --api_keys_file", str(refusal))
        self.ask("key-of-free", "shout")
