"""Values of flags from the command line, variables and a configuration file."""

import os
import re
import subprocess
import unittest

import setting
from server_process import TIME_SCALE, ServerProcess


def configuration_of(server):
    """Name to (value, source), as the server logs it at start."""
    found = re.findall(r"  (\w+) +(.*)  \[(.+)\]$", server.log, re.M)
    return {name: (value, source) for name, value, source in found}


def refusal(arguments, **variables):
    done = subprocess.run([setting.chorus, "serve", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **variables}, timeout=60 * TIME_SCALE)
    return done.returncode, done.stderr.strip()


class Configuration(unittest.TestCase):
    def write(self, text):
        path = setting.scratch() / f"{self.id()}.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def test_one_file_is_enough(self):
        path = self.write(f"model: {setting.demo / 'base'}\n"
                          "model_name: from-file\n"
                          "lora_dir:\n"
                          f"  - {setting.demo / 'adapters' / 'roman'}\n"
                          f"  - loud={setting.demo / 'adapters' / 'shout'}\n"
                          "dtype: float32\n"
                          "max_batch_size: 3\n"
                          f"cache_dir: {setting.scratch() / 'cache'}\n")
        with ServerProcess(setting.chorus, [], {"CHORUS_CONFIG": str(path), "CHORUS_MAX_BATCH_SIZE": "2",
                                                "CHORUS_MAX_QUEUE_SIZE": "9"}) as server:
            names = [model["id"] for model in server.request("GET", "/v1/models")[2]["data"]]
            self.assertEqual(sorted(names), ["from-file", "loud", "roman"])
            values = configuration_of(server)
        self.assertEqual(values["model_name"], ("from-file", f"{path}, line 2"))
        self.assertEqual(values["max_batch_size"], ("2", "CHORUS_MAX_BATCH_SIZE"))
        self.assertEqual(values["max_queue_size"], ("9", "CHORUS_MAX_QUEUE_SIZE"))
        self.assertEqual(values["port"], ("0", "flag"))
        self.assertEqual(values["host"], ("127.0.0.1", "default"))

    def test_mistakes_are_one_line_with_the_place(self):
        for text, expected in (("port: 1\nlora_dri: x\n", "line 2: lora_dri: no flag of chorus serve; did you mean lora_dir?"),
                               ("port: many\n", "line 1: port: many is not a whole number; use 0 to 65535"),
                               (f"model: {setting.demo / 'base'}\nport: 0\nlora_dir: /nowhere\n", "line 3"),
                               ("port: 1\nport: 2\n", "line 2, column 1: the key 'port' occurs twice")):
            with self.subTest(text=text):
                path = self.write(text)
                code, error = refusal(["--config", path, "--log_level", "error"])
                self.assertEqual(code, 2)
                self.assertEqual(len(error.splitlines()), 1, error)
                self.assertIn(f"{path}", error)
                self.assertIn(expected, error)

    def test_a_bad_variable_of_the_server_stops_no_other_command(self):
        code, error = refusal([setting.demo / "base"], CHORUS_MAX_QUEUE_SIZE="many")
        self.assertEqual(code, 2)
        self.assertIn("CHORUS_MAX_QUEUE_SIZE: many is not a whole number", error)
        done = subprocess.run([setting.chorus, "--version"], env={**os.environ, "CHORUS_MAX_QUEUE_SIZE": "many"},
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0)
        done = subprocess.run([setting.chorus, "inspect", "--architectures"],
                              env={**os.environ, "CHORUS_MAX_QUEUE_SIZE": "many"}, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0)
