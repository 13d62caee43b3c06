"""Start-up: what is refused at once, which files are read, adapters before their first use."""

import json
import re
import shutil
import socket
import struct
import subprocess
import time
import unittest

import setting
from server_process import TIME_SCALE, ServerProcess, soon
from test_lifecycle import copy_of_base, error_line

ARGUMENTS = ("--dtype", "float32")


def serve_arguments(*more):
    return [setting.demo / "base", *ARGUMENTS, "--cache_dir", setting.scratch() / "cache", *more]


def served(server):
    return [model["id"] for model in server.request("GET", "/v1/models")[2]["data"]]


def ask(server, name):
    return server.request("POST", "/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})


def bytes_read(server):
    with open(f"/proc/{server.process.pid}/io", encoding="ascii") as lines:
        return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


def spoil_values(weights):
    """Sets every value of a safetensors file to NaN and keeps the header."""
    data = bytearray(weights.read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    data[begin:] = b"\xff" * (len(data) - begin)
    weights.write_bytes(data)


def hub_copy(source, repository, revision="0123abcd"):
    """Copies an adapter in the layout of huggingface_hub's cache."""
    snapshot = repository / "snapshots" / revision
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    for number, file in enumerate(sorted(source.iterdir())):
        shutil.copy(file, repository / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")


class AtOnce(unittest.TestCase):
    def test_a_port_that_is_taken_is_reported_before_anything_is_prepared(self):
        cache = setting.scratch() / "port"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = subprocess.run([setting.chorus, "serve", setting.demo / "base", "--cache_dir", cache, "--port",
                                   str(port)], capture_output=True, text=True, timeout=60 * TIME_SCALE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"port {port}", done.stderr)
        self.assertIn("choose another --host or --port", done.stderr)
        self.assertFalse((cache / "engines").exists())

    def test_an_unknown_architecture_of_141_gb_is_refused_at_once(self):
        model = setting.scratch() / "huge"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"architectures": ["UnheardOfForCausalLM"]}))
        for shard in range(30):
            with open(model / f"model-{shard:05}.safetensors", "wb") as file:
                file.truncate(4_700_000_000)

        def seconds():
            begun = time.monotonic()
            code, line = error_line([model, "--cache_dir", setting.scratch() / "huge-cache"])
            self.assertNotEqual(code, 0)
            self.assertIn("UnheardOfForCausalLM", line)
            return time.monotonic() - begun
        self.assertTrue(soon(seconds, 5), "hashing it takes minutes")

    def test_a_model_that_does_not_fit_is_one_sentence(self):
        code, line = error_line(serve_arguments("--max_seq_len", 1 << 28, "--max_cpu_loras", 1 << 20))
        self.assertNotEqual(code, 0)
        for part in ("the model does not fit", "weights", "KV cache of one sequence", "activations", "adapters", "free",
                     "--max_seq_len", "--quantize"):
            self.assertIn(part, line)

    def test_inspect_says_whether_it_fits_here(self):
        def inspect(model):
            done = subprocess.run([setting.chorus, "inspect", model], capture_output=True, text=True, check=True,
                                  timeout=60 * TIME_SCALE)
            return next(line for line in done.stdout.splitlines() if "memory to serve it" in line)
        self.assertIn("fits here", inspect(setting.demo / "base"))
        large = copy_of_base("long")
        config = json.loads((large / "config.json").read_text())
        (large / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 28}))
        self.assertIn("does not fit here", inspect(large))


class Variables(unittest.TestCase):
    def refusal(self, *arguments, **variables):
        done = subprocess.run(
            [setting.chorus, "serve", *map(str, serve_arguments("--port", "0", *arguments))], capture_output=True,
            text=True, env=variables, timeout=60 * TIME_SCALE)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_errors_from_variables_name_the_variable(self):
        line = self.refusal(NIM_PEFT_REFRESH_INTERVAL="often")
        self.assertIn("NIM_PEFT_REFRESH_INTERVAL", line)
        self.assertNotIn("--lora_refresh_interval", line)
        line = self.refusal(NIM_PEFT_SOURCE="/nowhere")
        self.assertIn("NIM_PEFT_SOURCE /nowhere", line)
        line = self.refusal("--lora_modules", "x=/nowhere", NIM_PEFT_SOURCE=str(setting.demo / "adapters"))
        self.assertIn("--lora_modules x=/nowhere", line)
        self.assertIn("NIM_MAX_LORA_RANK", self.refusal(NIM_MAX_LORA_RANK="0"))
        line = self.refusal(NIM_PEFT_SOURCE="http://entity-store:8000")
        self.assertIn("NIM_PEFT_SOURCE http://entity-store:8000: nothing is downloaded", line)

    def test_every_variable_of_nim_that_acts_is_named_by_its_errors(self):
        wrong = {"NIM_PEFT_SOURCE": "/nowhere", "NIM_PEFT_REFRESH_INTERVAL": "-1", "NIM_MAX_GPU_LORAS": "0",
                 "NIM_MAX_CPU_LORAS": "many", "NIM_MAX_LORA_RANK": "65537", "NIM_MODEL_NAME": "hf://meta/llama",
                 "NIM_MODEL_PATH": "/nowhere", "NIM_FT_MODEL": "ngc://x/y", "NIM_SERVED_MODEL_NAME": None,
                 "NIM_MAX_MODEL_LEN": "0", "NIM_CACHE_PATH": "/dev/null/cache", "NIM_MAX_BATCH_SIZE": "x",
                 "NIM_MAX_NUM_SEQS": "0", "NIM_MAX_NUM_BATCHED_TOKENS": "0", "NIM_KVCACHE_PERCENT": "90",
                 "NIM_HTTP_API_HOST": "not an address", "NIM_SERVER_PORT": "65536", "NIM_HTTP_API_PORT": "http",
                 "NIM_CORS_ALLOW_ORIGINS": "everybody", "NIM_LOG_LEVEL": "LOUD", "NIM_JSONL_LOGGING": "maybe"}
        page = (setting.demo.parents[1] / "docs" / "flags.md").read_text(encoding="utf-8")
        acting = set(re.findall(r"^\| `(NIM_\w+)` \| `--", page, re.MULTILINE))
        self.assertEqual({name for name in acting if not name.startswith("NIM_SSL_")}, set(wrong))
        for name, value in wrong.items():
            if value is None:  # every value is a name
                continue
            with self.subTest(variable=name):
                arguments = {name: value}
                command = [setting.chorus, "serve", *map(str, ARGUMENTS)]
                if name not in ("NIM_MODEL_NAME", "NIM_MODEL_PATH", "NIM_FT_MODEL"):
                    command.insert(2, str(setting.demo / "base"))
                if name not in ("NIM_CACHE_PATH",):
                    command += ["--cache_dir", str(setting.scratch() / "cache")]
                done = subprocess.run(command, capture_output=True, text=True, env=arguments, timeout=60 * TIME_SCALE)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(name, done.stderr.splitlines()[-1])

    def test_refused_variables_end_the_start(self):
        line = self.refusal(NIM_TENSOR_PARALLEL_SIZE="2")
        self.assertIn("NIM_TENSOR_PARALLEL_SIZE", line)
        both = {"NIM_SERVER_PORT": "8000", "NIM_HTTP_API_PORT": "8001"}
        done = subprocess.run([setting.chorus, "serve", *map(str, serve_arguments())], capture_output=True, text=True,
                              env=both, timeout=60 * TIME_SCALE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("NIM_HTTP_API_PORT: NIM_SERVER_PORT is set too", done.stderr)
        line = self.refusal("--engine_dir", "/nowhere")
        self.assertIn("--model and --engine_dir are both given", line)

    def test_none_is_no_refresh_and_the_cache_path_acts(self):
        cache = setting.scratch() / "nim-cache"
        environment = {"NIM_PEFT_SOURCE": str(setting.demo / "adapters"), "NIM_PEFT_REFRESH_INTERVAL": "None",
                       "NIM_CACHE_PATH": str(cache)}
        with ServerProcess(setting.chorus, [setting.demo / "base", *ARGUMENTS], env=environment) as server:
            self.assertEqual(served(server), ["base", *setting.adapter_names()])
        self.assertEqual(len([path for path in (cache / "engines").iterdir() if path.is_dir()]), 1)
        engine = next((cache / "engines").glob("*/engine"))
        arguments = ["--engine_dir", engine, "--tokenizer_dir", setting.demo / "base", "--port", 0]
        done = subprocess.run([setting.chorus, "serve", *map(str, arguments)], capture_output=True, text=True,
                              env={"NIM_MAX_LORA_RANK": "1024"}, timeout=60 * TIME_SCALE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NIM_MAX_LORA_RANK 1024: the engine", done.stderr)


class AdaptersBeforeTheirFirstUse(unittest.TestCase):
    def folder(self, name, *adapters):
        source = setting.scratch() / name
        source.mkdir()
        names = setting.adapter_names()
        for number, adapter in enumerate(adapters):
            shutil.copytree(setting.demo / "adapters" / names[number], source / adapter)
        return source

    def test_an_adapter_that_vanished_leaves_the_list(self):
        source = self.folder("vanishing", "stays", "vanishes")
        with ServerProcess(setting.chorus, serve_arguments("--lora_dir", source)) as server:
            self.assertEqual(served(server), ["base", "stays", "vanishes"])
            shutil.rmtree(source / "vanishes")
            self.assertNotEqual(ask(server, "vanishes")[0], 200)
            self.assertEqual(served(server), ["base", "stays"])
            self.assertEqual(ask(server, "vanishes")[0], 404)
            self.assertEqual(ask(server, "stays")[0], 200)

    def test_invalid_content_is_refused_at_first_use_in_one_line(self):
        source = self.folder("spoilt", "good", "spoilt")
        spoil_values(source / "spoilt" / "adapter_model.safetensors")
        with ServerProcess(setting.chorus, serve_arguments("--lora_dir", source)) as server:
            status, _, body = ask(server, "spoilt")
            self.assertEqual(status, 400)
            self.assertRegex(body["error"]["message"], "^The adapter 'spoilt' cannot be served: .*not finite")
            self.assertEqual((body["error"]["param"], body["error"]["code"]), ("model", "adapter_refused"))
            self.assertEqual(served(server), ["base", "good"])
            self.assertEqual(ask(server, "spoilt")[0], 404)
            self.assertEqual(ask(server, "good")[0], 200)
            lines = [line for line in server.log_lines if "adapter left out" in line]
            self.assertEqual(len(lines), 1, lines)
            self.assertIn("not finite", lines[0])

    def test_links_within_a_hugging_face_cache_are_followed(self):
        source = setting.scratch() / "hub"
        source.mkdir()
        name = setting.adapter_names()[0]
        hub_copy(setting.demo / "adapters" / name, source / "models--org--one")
        hub_copy(setting.demo / "adapters" / name, source / "models--org--thief")
        weights = source / "models--org--thief/snapshots/0123abcd/adapter_model.safetensors"
        weights.unlink()
        weights.symlink_to("../../../models--org--one/snapshots/0123abcd/adapter_model.safetensors")
        row = next(row for row in setting.expected() if row["adapter"] == name)
        with ServerProcess(setting.chorus, serve_arguments("--lora_dir", source)) as server:
            self.assertEqual(served(server), ["base", "models--org--one"])
            answer = setting.client(server).chat.completions.create(
                model="models--org--one", messages=[{"role": "user", "content": row["prompt"]}], temperature=0)
            self.assertEqual(answer.choices[0].message.content, row["text"])

    def test_starting_reads_no_adapter_whole(self):
        source = setting.scratch() / "many"
        source.mkdir()
        original = setting.demo / "adapters" / setting.adapter_names()[0]
        size = (original / "adapter_model.safetensors").stat().st_size
        count = 60
        read = {}
        for adapters in (0, count):
            for number in range(adapters):
                shutil.copytree(original, source / f"adapter{number:03}")
            with ServerProcess(setting.chorus, serve_arguments("--lora_dir", source)) as server:
                self.assertEqual(len(served(server)), 1 + adapters)
                read[adapters] = bytes_read(server)
                if adapters:
                    self.assertEqual(ask(server, "adapter000")[0], 200)
        header = 128 * 1024 + 64 * 1024
        each = (read[count] - read[0]) / count
        self.assertLess(each, min(size, header), f"of {size} bytes")
