"""The demo model and its adapters as NeMo's archives: `chorus serve MODEL.nemo`."""

import shutil
import unittest

import nemo_archives
import setting
from server_process import ServerProcess
from test_answers import ask
from test_lifecycle import error_line


class Nemo(unittest.TestCase):
    def setUp(self):
        self.directory = setting.scratch() / "nemo"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        self.model = self.directory / "demo.nemo"
        nemo_archives.write_llama(self.model, setting.demo / "base")

    def serve(self, *more):
        return ServerProcess(setting.chorus, [self.model, "--tokenizer_dir", setting.demo / "base", "--dtype", "float32",
                                              "--cache_dir", self.directory / "cache", *more])

    def test_an_archive_and_a_mixed_directory_of_adapters_answer_as_peft_does(self):
        adapters = self.directory / "adapters"
        for name in ("roman", "shout"):  # those on the linears of attention alone
            (adapters / name).mkdir(parents=True)
            nemo_archives.write_adapter(adapters / name / "any.nemo", setting.demo / "base",
                                        setting.demo / "adapters" / name)
        for name in ("german", "json"):
            shutil.copytree(setting.demo / "adapters" / name, adapters / name)
        shutil.copytree(setting.demo / "adapters" / "sum", adapters / "both")
        shutil.copy(adapters / "shout" / "any.nemo", adapters / "both")
        (adapters / "none").mkdir()
        (adapters / "two").mkdir()
        for archive in ("a.nemo", "b.nemo"):
            shutil.copy(adapters / "shout" / "any.nemo", adapters / "two" / archive)
        with self.serve("--lora_dir", adapters) as server:
            client = setting.client(server)
            self.assertEqual([model.id for model in client.models.list()], ["demo", "german", "json", "roman", "shout"])
            for name in ("both", "none", "two"):
                self.assertTrue(any(f"/{name}" in line for line in server.log_lines), server.log)
            rows = [row for row in setting.expected() if row["adapter"] != "sum"]
            self.assertEqual({row["adapter"] for row in rows}, {None, "german", "json", "roman", "shout"})
            for row in rows:
                with self.subTest(adapter=row["adapter"], prompt=row["prompt"]):
                    answer = ask(client, {**row, "adapter": row["adapter"] or "demo"}, max_tokens=64)
                    self.assertEqual(answer.choices[0].message.content, row["text"])
        # The second start finds the engine.
        with self.serve() as server:
            self.assertEqual([model.id for model in setting.client(server).models.list()], ["demo"])
        engines = [path for path in (self.directory / "cache" / "engines").iterdir() if path.is_dir()]
        self.assertEqual(len(engines), 1)

    def test_a_model_without_a_tokenizer_and_an_adapter_as_the_model_are_one_line(self):
        code, line = error_line([self.model, "--cache_dir", self.directory / "cache"])
        self.assertNotEqual(code, 0)
        self.assertIn("somebody/model of huggingface", line)
        self.assertIn("--tokenizer_dir", line)
        adapter = self.directory / "adapter.nemo"
        nemo_archives.write_adapter(adapter, setting.demo / "base", setting.demo / "adapters" / "shout")
        code, line = error_line([adapter, "--cache_dir", self.directory / "cache"])
        self.assertNotEqual(code, 0)
        self.assertIn("a NeMo adapter, not a model", line)
