"""Time limits for waiting requests, and shares by weight."""

import json
import threading
import unittest

import openai

import setting
from server_process import TIME_SCALE, ServerProcess, wait_until

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
            "weighted", "--queue_timeout", "600", "--log_format", "json"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def client(self, key="key-of-other", retries=0):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=retries, timeout=120 * TIME_SCALE)

    def active(self):
        return self.server.active({"x-api-key": "key-of-other"})

    def test_a_request_that_waits_too_long_is_refused(self):
        expected = self.client().completions.create(**SHORT).choices[0].text
        for _ in range(5):  # the requests in front may end too soon if this client is slow
            # Requests of one client are served in their order, so what comes behind these waits.
            first = self.client().completions.create(**LONG, stream=True, extra_headers={"x-request-timeout-ms": "599000"})
            waiting = [threading.Thread(target=lambda: self.client().completions.create(**LONG)) for _ in range(3)]
            for thread in waiting:
                thread.start()
            wait_until(lambda: self.active() >= 3 or not any(thread.is_alive() for thread in waiting))
            refusals = []
            for stream in (False, True):
                try:
                    self.client().completions.create(**SHORT, stream=stream, extra_headers={"x-request-timeout-ms": "20"})
                except openai.InternalServerError as error:
                    refusals.append(error)
            in_time = any(thread.is_alive() for thread in waiting)
            self.assertEqual(sum(1 for chunk in first if chunk.choices and chunk.choices[0].finish_reason), 1)
            for thread in waiting:
                thread.join()
            if refusals and in_time:
                break
        self.assertTrue(in_time, "the refusals came when the requests in front had ended")
        for refusal in refusals:
            self.assertEqual((refusal.status_code, refusal.code), (503, "queue_timeout"))
            self.assertIn("queue timeout of 20 ms", str(refusal))
            self.assertIn("retry-after", refusal.response.headers)
        self.assertTrue(refusals, "the queue was never long enough")
        self.assertEqual(self.client().completions.create(**SHORT).choices[0].text, expected)

    def test_a_header_that_is_no_number_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as refusal:
            self.client().completions.create(**SHORT, extra_headers={"x-request-timeout-ms": "2s"})
        self.assertIn("x-request-timeout-ms must be a whole number", str(refusal.exception))

    def test_weights_order_and_change_no_answer(self):
        answers, lock = set(), threading.Lock()
        clients = {name: self.client(f"key-of-{name}") for name in ("light", "heavy")}

        def ask(name, request_id):
            answer = clients[name].completions.create(
                **{**SHORT, "max_tokens": 30}, extra_body={"ignore_eos": True},
                extra_headers={"x-request-id": request_id}).choices[0].text
            with lock:
                answers.add(answer)
        for number in range(10):  # on a busy machine, the first requests may end before the last ones arrive
            hold = self.client().completions.create(**{**LONG, "max_tokens": 900}, stream=True)
            next(iter(hold))
            threads = [threading.Thread(target=ask, args=(name, f"try-{number}-{name}-{i}"))
                       for name in ("light", "heavy") for i in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            hold.close()
            # The server's order, because a busy machine may wake this test's threads in another one.
            lines = (json.loads(line).get("request_id", "") for line in self.server.log_lines)
            ended = [line.split("-")[2] for line in lines if line.startswith(f"try-{number}-")]
            self.assertEqual(len(ended), 40)
            # Four of five of the first requests to end are the heavy key's. If the weights had no effect, it would be half of
            # them in every try.
            first = ended[:20]
            if first.count("heavy") >= 14 and first.count("light") >= 2:
                break
        else:
            self.fail(f"in none of the tries were the requests served by weight: {ended}")
        self.assertEqual(len(answers), 1)
