"""NVIDIA NIM's behaviour with adapters, step by step: variables, list, mixed batch, refresh, both caches."""

import concurrent.futures
import contextlib
import json
import random
import re
import shutil
import struct
import threading
import time
import unittest
from array import array

import openai

import setting
from server_process import TIME_SCALE, ServerProcess, wait_until

BASE = "meta/llama3-8b-instruct"
RANK, GPU_LORAS, CPU_LORAS = 32, 2, 3
LONG = {"prompt": "the", "max_tokens": 900, "temperature": 0, "ignore_eos": True}

# What NIM's page about adapters prints for GET /v1/models; "..." stands for a value that differs.
LISTED = {
    "id": "...", "object": "model", "created": 0, "owned_by": "vllm", "root": BASE, "parent": None,
    "permission": [{
        "id": "...", "object": "model_permission", "created": 0, "allow_create_engine": False, "allow_sampling": True,
        "allow_logprobs": True, "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False,
        "organization": "*", "group": None, "is_blocking": False}]}
# What the same page prints for POST /v1/completions.
COMPLETED = {
    "id": "...", "object": "text_completion", "created": 0, "model": "...",
    "choices": [{"index": 0, "text": "...", "logprobs": None, "finish_reason": "...", "stop_reason": None}],
    "usage": {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}}


def linears():
    """Name, inputs and outputs of each linear of a layer of the demo model."""
    config = json.loads((setting.demo / "base" / "config.json").read_text())
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    queries = config["head_dim"] * config["num_attention_heads"]
    keys = config["head_dim"] * config["num_key_value_heads"]
    layer = {"self_attn.q_proj": (hidden, queries), "self_attn.k_proj": (hidden, keys), "self_attn.v_proj": (hidden, keys),
             "self_attn.o_proj": (queries, hidden), "mlp.gate_proj": (hidden, mlp), "mlp.up_proj": (hidden, mlp),
             "mlp.down_proj": (mlp, hidden)}
    return config["num_hidden_layers"], layer


def write_adapter(directory, rank, seed):
    """An adapter of PEFT's form with random weights of every linear."""
    layers, layer = linears()
    draw = random.Random(seed)
    tensors, data = {}, bytearray()
    for number in range(layers):
        for name, (inputs, outputs) in layer.items():
            for part, shape in (("lora_A", [rank, inputs]), ("lora_B", [outputs, rank])):
                values = array("f", (draw.uniform(-0.02, 0.02) for _ in range(shape[0] * shape[1]))).tobytes()
                tensors[f"base_model.model.model.layers.{number}.{name}.{part}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    header = json.dumps(tensors).encode()
    directory.mkdir(parents=True)
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
         "target_modules": sorted(name.split(".")[1] for name in layer)}))


class Story(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = setting.scratch() / "nim-loras"
        for number, name in enumerate("abcd"):
            write_adapter(cls.source / f"full-{name}", RANK, number)
        for number in range(CPU_LORAS * 4):
            write_adapter(cls.source / f"small-{number:02}", RANK // 4, 100 + number)
        for name in ("roman", "shout"):
            shutil.copytree(setting.demo / "adapters" / name, cls.source / name)
        cls.environment = {
            "NIM_MODEL_NAME": str(setting.demo / "base"), "NIM_SERVED_MODEL_NAME": BASE, "NIM_HTTP_API_HOST": "127.0.0.1",
            "NIM_SERVER_PORT": "0", "NIM_PEFT_SOURCE": str(cls.source), "NIM_PEFT_REFRESH_INTERVAL": "2",
            "NIM_MAX_LORA_RANK": str(RANK), "NIM_MAX_GPU_LORAS": str(GPU_LORAS), "NIM_MAX_CPU_LORAS": str(CPU_LORAS),
            "NIM_CACHE_PATH": str(setting.scratch() / "cache"), "NIM_KVCACHE_PERCENT": "0.05", "NIM_MAX_BATCH_SIZE": "32",
            "NIM_LOG_LEVEL": "INFO", "NIM_JSONL_LOGGING": "0",
            # Without effect, unknown, and refused variables that ask for nothing.
            "NIM_MODEL_PROFILE": "vllm-bf16-tp1-pp1", "NIM_INVENTED": "1", "NIM_TENSOR_PARALLEL_SIZE": "1",
            "NIM_ENABLE_OTEL": "0"}
        cls.server = ServerProcess(setting.chorus, ["--dtype", "float32"], cls.environment, port=None)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, model, **options):
        return self.server.request("POST", "/v1/completions",
                                   {"model": model, "prompt": "two dogs", "max_tokens": 1, "temperature": 0, **options})

    def batch(self):
        return self.server.request("GET", "/v1/batch")[2]

    def resident(self):
        return {one["name"] for one in self.batch()["adapter_cache"]["adapters"] if one["state"] != "loading"}

    def listed(self):
        return [model["id"] for model in self.server.request("GET", "/v1/models")[2]["data"]]

    def until(self, condition, what):
        self.assertTrue(wait_until(condition), what)

    @contextlib.contextmanager
    def requests(self, models):
        """Long requests of the models, which run or wait; they are cancelled at the end."""
        with contextlib.ExitStack() as stack:
            for model in models:
                connection = self.server.connect()
                stack.callback(connection.close)
                connection.request("POST", "/v1/completions", json.dumps({**LONG, "model": model, "stream": True}),
                                   {"Content-Type": "application/json"})
            yield
        self.until(self.server.idle, "cancelled requests end, also those that are still prepared")

    def while_active(self, models, check=lambda: None):
        """The result of check() of a time in which long requests of all models ran or waited. On a busy machine they may end
        too soon, so it tries several times."""
        for _ in range(10):
            with self.requests(models):
                deadline = time.monotonic() + 10 * TIME_SCALE
                while self.server.active() < len(models) and time.monotonic() < deadline:
                    time.sleep(0.005)
                result = check()
                if self.server.active() >= len(models):
                    return result
        self.fail(f"requests of {models} were never active together")

    def same_form(self, example, answer, path=""):
        """Fails unless the answer has every member of the example, with values of its types and its constants."""
        if isinstance(example, dict):
            for name, value in example.items():
                self.assertIn(name, answer, path)
                self.same_form(value, answer[name], f"{path}.{name}")
        elif isinstance(example, list):
            self.assertEqual(len(answer), len(example), path)
            for one, other in zip(example, answer):
                self.same_form(one, other, path + "[]")
        elif example == "..." or (type(example) is int and example == 0):
            self.assertIs(type(answer), type(example), path)
        else:
            self.assertEqual(answer, example, path)

    def test_01_the_variables_act_or_are_named(self):
        values = {}
        for line in self.server.log_lines:
            if found := re.search(r"  ([a-z_]+) +(.*?)  \[(\w+)\]$", line):
                values[found[1]] = (found[2], found[3])
        for flag, variable in {
                "model": "NIM_MODEL_NAME", "model_name": "NIM_SERVED_MODEL_NAME", "host": "NIM_HTTP_API_HOST",
                "port": "NIM_SERVER_PORT", "lora_dir": "NIM_PEFT_SOURCE", "lora_refresh_interval": "NIM_PEFT_REFRESH_INTERVAL",
                "max_lora_rank": "NIM_MAX_LORA_RANK", "max_gpu_loras": "NIM_MAX_GPU_LORAS", "max_cpu_loras": "NIM_MAX_CPU_LORAS",
                "cache_dir": "NIM_CACHE_PATH", "kv_cache_free_memory_fraction": "NIM_KVCACHE_PERCENT",
                "max_batch_size": "NIM_MAX_BATCH_SIZE"}.items():
            self.assertEqual(values[flag], (self.environment[variable], variable))
        named = [line for line in self.server.log_lines if "NIM_MODEL_PROFILE" in line]
        self.assertEqual(len(named), 1, named)
        self.assertIn("no effect", named[0])
        (unknown,) = [line for line in self.server.log_lines if "NIM_INVENTED" in line]
        self.assertIn("warning", unknown)

    def test_02_models_are_listed_as_nim_prints_them(self):
        status, _, listed = self.server.request("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(list(listed), ["object", "data"])
        self.assertEqual(listed["object"], "list")
        names = sorted(path.name for path in self.source.iterdir())
        self.assertEqual([model["id"] for model in listed["data"]][:1 + len(names)], [BASE, *names])
        for model in listed["data"]:
            self.assertEqual(list(model), [*LISTED, "max_model_len"])
            self.assertGreater(model.pop("max_model_len"), 0)
            self.assertEqual(list(model["permission"][0]), list(LISTED["permission"][0]))
            self.same_form(LISTED, model)
            self.assertRegex(model["permission"][0]["id"], r"^modelperm-[0-9a-f]{32}$")
            self.assertLess(abs(model["created"] - time.time()), 7200)
        permissions = {model["permission"][0]["id"] for model in listed["data"]}
        self.assertEqual(len(permissions), len(listed["data"]))

    def test_03_completions_have_the_form_that_nim_prints(self):
        for model in (BASE, "roman"):
            status, _, answer = self.ask(model, max_tokens=4, ignore_eos=True)
            self.assertEqual(status, 200)
            self.same_form({**COMPLETED, "model": model}, answer)
            self.assertRegex(answer["id"], r"^cmpl-[0-9a-f]{32}$")
            usage = answer["usage"]
            self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_04_the_service_describes_itself(self):
        version = self.server.request("GET", "/v1/version")[2]
        self.assertEqual(set(version), {"release", "api"})
        license = self.server.request("GET", "/v1/license")[2]
        self.assertEqual(license["size"], len(license["content"]))
        self.assertEqual(license["type"], "file")
        metadata = self.server.request("GET", "/v1/metadata")[2]
        self.assertEqual(set(metadata), {"version", "assetInfo", "licenseInfo", "modelInfo", "repository_override",
                                         "selectedModelProfileId"})
        self.assertEqual(metadata["version"], version["release"])
        self.assertEqual(metadata["licenseInfo"], license)
        self.assertEqual([model["shortName"] for model in metadata["modelInfo"]], self.listed())
        manifest = self.server.request("GET", "/v1/manifest")[2]
        self.assertEqual(set(manifest), {"manifest_file", "repository_override"})
        for answer in (metadata, manifest):
            self.assertNotIn(str(setting.demo), json.dumps(answer), "no path of the server")
        self.assertEqual(self.server.request("GET", "/v1/health/live")[2]["object"], "health.response")

    def test_05_base_and_adapters_share_a_step(self):
        models = [BASE, "roman", "shout", BASE, "roman"]
        wish = {**LONG, "max_tokens": 400}
        alone = {model: self.ask(model, **wish)[2]["choices"][0]["text"] for model in set(models)}
        self.assertEqual(len(set(alone.values())), 3)
        steps, over = [], threading.Event()

        def watch():
            while not over.is_set():
                steps.append(self.batch()["step"]["sequences_of_model"])
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for _ in range(30):
                with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
                    answers = list(pool.map(lambda model: self.ask(model, **wish), models))
                for model, (status, _, answer) in zip(models, answers):
                    self.assertEqual(status, 200)
                    self.assertEqual(answer["choices"][0]["text"], alone[model], "as alone")
                if {BASE: 2, "roman": 2, "shout": 1} in steps:
                    break
            else:
                self.fail("no step had all five requests")
        finally:
            over.set()
            watcher.join()

    def test_06_a_new_directory_appears_after_the_interval(self):
        self.assertNotIn("new-lora", self.listed())
        staged = setting.scratch() / "nim-staged"
        write_adapter(staged, RANK // 4, 50)
        staged.rename(self.source / "new-lora")
        self.until(lambda: "new-lora" in self.listed(), "the adapter appears")
        self.assertEqual(self.ask("new-lora")[0], 200)

    def test_07_more_active_adapters_than_the_host_cache_holds_are_429(self):
        full = [f"full-{name}" for name in "abcd"]
        before = self.server.metric("chorus_http_requests_total", route="/v1/completions", status="429")

        def fourth():
            error = None
            with setting.client(self.server) as client:
                try:
                    client.completions.create(model=full[3], prompt="two dogs", max_tokens=1)
                except openai.RateLimitError as refusal:
                    error = refusal
            return error, self.ask(BASE)[0], self.ask(full[0])[0]
        error, base, active = self.while_active(full[:3], fourth)
        self.assertIsNotNone(error)
        self.assertGreater(int(error.response.headers["retry-after-ms"]), 0)
        self.assertEqual(error.code, "adapter_cache_full")
        for part in ("CPU PEFT cache", "NIM_MAX_CPU_LORAS", full[3]):
            self.assertIn(part, error.message)
        self.assertEqual((base, active), (200, 200), "the base model and active adapters are still served")
        self.assertGreater(self.server.metric("chorus_http_requests_total", route="/v1/completions", status="429"), before)
        self.assertEqual(self.ask(full[3])[0], 200, "once the others are idle")

    def test_08_the_least_recently_used_adapter_is_evicted(self):
        full = [f"full-{name}" for name in "abcd"]
        for name in (full[0], full[1], full[2], full[0]):
            self.assertEqual(self.ask(name)[0], 200)
        self.until(lambda: self.resident() == set(full[:3]), "three adapters fill the cache")
        before = self.server.metric("chorus_adapter_cache_evictions_total", level="host")
        for asked, left in ((full[3], full[1]), (full[1], full[2]), (full[2], full[0]), (full[0], full[3])):
            self.assertEqual(self.ask(asked)[0], 200)
            self.until(lambda: self.resident() == set(full) - {left}, f"{asked} takes the place of {left}")
        self.assertEqual(self.server.metric("chorus_adapter_cache_evictions_total", level="host") - before, 4)

    def test_09_lower_ranks_fit_more_adapters(self):
        small = [f"small-{number:02}" for number in range(CPU_LORAS * 4)]
        before = self.server.metric("chorus_http_requests_total", route="/v1/completions", status="429")
        self.while_active(small)
        self.assertEqual(self.server.metric("chorus_http_requests_total", route="/v1/completions", status="429"), before,
                         f"{CPU_LORAS} adapters of rank {RANK} take the place of {len(small)} of rank {RANK // 4}")

    def most_adapters_of_a_step(self, models):
        most = 0
        with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
            answers = [pool.submit(self.ask, model, **{**LONG, "max_tokens": 300}) for model in models]
            while not all(answer.done() for answer in answers):
                most = max(most, len(self.batch()["step"]["sequences_of_model"]))
        self.assertEqual({answer.result()[0] for answer in answers}, {200}, "those that do not fit wait, none is refused")
        return most

    def test_10_the_device_cache_bounds_a_step(self):
        full = [f"full-{name}" for name in "abc"]
        small = [f"small-{number:02}" for number in range(GPU_LORAS * 4)]
        for models, most in ((full, GPU_LORAS), (small, len(small))):
            counts = []
            while most not in counts and len(counts) < 30:
                counts.append(self.most_adapters_of_a_step(models))
            self.assertEqual(max(counts), most, models)

    def test_11_memory_is_taken_at_start_in_the_printed_sizes(self):
        sizes = {}
        for line in self.server.log_lines:
            if found := re.search(r"  (weights|KV cache|activations|adapters) +([0-9.]+) MiB(?:  ([0-9]+) tokens)?", line):
                sizes[found[1]] = (float(found[2]), found[3])
        self.assertEqual(set(sizes), {"weights", "KV cache", "activations", "adapters"})
        batch = self.batch()
        cache, kv = batch["adapter_cache"], batch["kv_cache"]
        self.assertAlmostEqual(cache["total_bytes"] / 2**20, sizes["adapters"][0], delta=0.1)
        self.assertEqual(kv["total_blocks"] * kv["tokens_per_block"], int(sizes["KV cache"][1]))
        self.assertGreater(cache["used_bytes"], 0)
        self.assertLessEqual(cache["used_bytes"], cache["total_bytes"])
        status = self.server.process_status()
        data = int(re.search(r"VmData:\s+([0-9]+) kB", status)[1]) / 1024
        self.assertGreater(data, sizes["KV cache"][0] + sizes["activations"][0])
