"""Time limits for waiting requests, and shares by weight."""

import threading
import time
import unittest

import openai

import setting
from server_process import TIME_SCALE, ServerProcess

KEYS = """
keys:
  - {name: heavy, key: key-of-heavy, weight: 4}
  - {name: light, key: key-of-light}
  - {name: other, key: key-of-other}
"""
LONG = {"model": "base", "prompt": "two cats", "max_tokens": 400, "extra_body": {"ignore_eos": True}}
SHORT = {"model": "base", "prompt": "two cats", "max_tokens": 2}


class Queue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        keys = setting.scratch() / "queue.yaml"
        keys.write_text(KEYS)
        cls.server = ServerProcess(setting.chorus, [
            *setting.demo_arguments(), "--api_keys_file", keys, "--max_batch_size", "1", "--threads", "1", "--fairness",
            "weighted", "--queue_timeout", "60"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def client(self, key="key-of-other", retries=0):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=retries, timeout=60 * TIME_SCALE)

    def test_a_request_that_waits_too_long_is_refused(self):
        expected = self.client().completions.create(**SHORT).choices[0].text
        # Requests of one client are served in their order, so what comes behind these waits.
        streams = [self.client().completions.create(**LONG, stream=True, timeout=60 * TIME_SCALE,
                                                    extra_headers={"x-request-timeout-ms": "59000"}) for _ in range(1)]
        waiting = [threading.Thread(target=lambda: self.client().completions.create(**LONG)) for _ in range(3)]
        for thread in waiting:
            thread.start()
        time.sleep(0.05)
        begun = time.monotonic()
        refusals = []
        for stream in (False, True):
            try:
                self.client().completions.create(**SHORT, stream=stream, extra_headers={"x-request-timeout-ms": "20"})
            except openai.InternalServerError as error:
                refusals.append(error)
        self.assertLess(time.monotonic() - begun, 10 * TIME_SCALE)
        for refusal in refusals:
            self.assertEqual((refusal.status_code, refusal.code), (503, "queue_timeout"))
            self.assertIn("queue timeout of 20 ms", str(refusal))
            self.assertIn("retry-after", refusal.response.headers)
        self.assertTrue(refusals, "the queue was never long enough")
        self.assertEqual(sum(1 for chunk in streams[0] if chunk.choices and chunk.choices[0].finish_reason), 1)
        for thread in waiting:
            thread.join()
        self.assertEqual(self.client().completions.create(**SHORT).choices[0].text, expected)

    def test_a_header_that_is_no_number_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as refusal:
            self.client().completions.create(**SHORT, extra_headers={"x-request-timeout-ms": "2s"})
        self.assertIn("x-request-timeout-ms must be a whole number", str(refusal.exception))

    def test_weights_order_and_change_no_answer(self):
        ended, answers, lock = [], set(), threading.Lock()
        hold = self.client().completions.create(**LONG, stream=True)
        next(iter(hold))

        def ask(name):
            answer = self.client(f"key-of-{name}").completions.create(**{**SHORT, "max_tokens": 30}, extra_body={
                "ignore_eos": True}).choices[0].text
            with lock:
                ended.append(name)
                answers.add(answer)
        threads = [threading.Thread(target=ask, args=(name,)) for name in ("light", "heavy") for _ in range(20)]
        for thread in threads:
            thread.start()
        for _ in hold:
            pass
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 1)
        # Four of five of the first requests to end are the heavy key's. Fewer suffice here, because requests may still
        # arrive in the stream's last steps.
        first = ended[:20]
        self.assertGreaterEqual(first.count("heavy"), 12, ended)
        self.assertGreaterEqual(first.count("light"), 2, ended)
