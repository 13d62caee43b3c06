"""API keys: who may see and use which adapters."""

import hashlib
import os
import unittest

import openai

import setting
from server_process import TIME_SCALE, ServerProcess, wait_until

KEYS = """
keys:
  - {name: one, key: key-of-one, adapters: [roman]}
  - {name: all, key_sha256: "%s"}
""" % hashlib.sha256(b"key-of-all").hexdigest()


class Access(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = setting.scratch() / "keys.yaml"
        cls.file.write_text(KEYS)
        cls.server = ServerProcess(setting.chorus, [*setting.demo_arguments(), "--api_keys_file", cls.file])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def client(self, key):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0, timeout=60 * TIME_SCALE)

    def ask(self, key, model):
        return self.client(key).completions.create(model=model, prompt="two cats", max_tokens=2).choices[0].text

    def test_a_key_is_needed(self):
        self.assertEqual(self.server.request("GET", "/v1/health/live")[0], 200)
        for path in ("/health", "/ping"):
            self.assertEqual(self.server.request("GET", path)[0], 200)
        for path in ("/v1/models", "/v1/nothing", "/version", "/openapi.json"):
            status, headers, body = self.server.request("GET", path)
            self.assertEqual((status, headers["www-authenticate"]), (401, "Bearer"))
            self.assertEqual(body["error"]["code"], "invalid_api_key")
        with self.assertRaises(openai.AuthenticationError):
            self.client("wrong-key-1").models.list()
        self.assertEqual(self.server.request("GET", "/v1/models", headers={"x-api-key": "key-of-all"})[0], 200)

    def test_adapters_of_others_do_not_exist(self):
        names = [model.id for model in self.client("key-of-one").models.list()]
        self.assertEqual(names, ["base", "roman"])
        self.assertIn("shout", [model.id for model in self.client("key-of-all").models.list()])
        self.assertEqual(self.ask("key-of-one", "roman"), self.ask("key-of-all", "roman"))
        refusals = []
        for model in ("shout", "nobody"):
            with self.assertRaises(openai.NotFoundError) as refused:
                self.ask("key-of-one", model)
            refusals.append(str(refused.exception).replace(model, "MODEL"))
        self.assertEqual(*refusals)
        with self.assertRaises(openai.NotFoundError):
            self.client("key-of-one").completions.create(
                model="base", prompt="two cats", extra_body={"adapters": [{"name": "shout", "weight": 1.0}]})

    def test_a_changed_file_is_read_again(self):
        self.addCleanup(self.replace, KEYS, "key-of-all", True)
        self.replace("keys: [{name: new, key: key-of-new}]", "key-of-all", False)
        self.assertEqual(self.server.request("GET", "/v1/models", headers={"x-api-key": "key-of-new"})[0], 200)
        self.replace("keys: [{name: new, key: short}]", "key-of-new", True)
        self.assertIn("the API keys stay as they were", self.server.log)
        self.assertNotIn("key-of-", self.server.log)

    def replace(self, text, key, works):
        """Replaces the file and waits until the key works or not."""
        before = self.server.log.count("API keys")
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self.file)
        self.assertTrue(wait_until(lambda: self.server.log.count("API keys") > before))

        def status():
            return self.server.request("GET", "/v1/models", headers={"x-api-key": key})[0]
        wait_until(lambda: status() == (200 if works else 401))  # the log is written before the keys change
        self.assertEqual(status(), 200 if works else 401)
