"""The key of CHORUS_API_KEY, and files of keys that end the start."""

import unittest

import setting
from server_process import ServerProcess

KEY = "sk-admin-0123456789"


class OneKey(unittest.TestCase):
    def test_the_variable(self):
        with ServerProcess(setting.chorus, setting.demo_arguments(), env={"CHORUS_API_KEY": KEY}) as server:
            self.assertEqual(server.request("GET", "/v1/models")[0], 401)
            self.assertEqual(server.request("GET", "/v1/models", headers={"x-api-key": KEY})[0], 200)
            self.assertNotIn(KEY, server.log, "the configuration in the log hides it")
            self.assertIn("--kv_reuse_scope client", server.log)

    def test_a_start_with_bad_keys_fails(self):
        path = setting.scratch() / "bad_keys.yaml"
        for text in ("", "keys: []", "keys: [{name: a, key: short}]", "keys: [{name: a, key: 123456789}]"):
            path.write_text(text)
            server = ServerProcess(setting.chorus, [*setting.demo_arguments(), "--api_keys_file", path], wait=False)
            self.assertNotEqual(server.wait_exit(), 0, text)
            self.assertIn("bad_keys.yaml", server.log)
