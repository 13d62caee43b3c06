#!/usr/bin/env python3
"""Replaces adapters under load over HTTP and checks that every answer comes from exactly one version that was present.

    replacement.py --chorus build/release/bin/chorus --demo examples/demo --minutes 60

Each version of the adapter has its own weights, and every second one a chat template. At first each version is served
under its own name and asked without other load: its answers, with the log probability of every token, identify it. Then
directories are replaced, by renaming and in place, while clients send requests; an answer that matches no version is a
fault.
"""

import argparse
import json
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
from server_process import ServerProcess  # noqa: E402

VERSIONS = 12
NAMES = ["swap-a", "swap-b", "swap-c", "swap-d"]
PROMPTS = ["twenty doors and thirty dogs", "the sum of nine and six", "a red house", "one"]
CLIENTS = 6
# Time after a replacement in which the old version may still be seen: the interval of the scan, one second in which the
# files must not change, and the scan itself.
LAG_S = 6.0
RANK = 8


def write_version(directory, config, version):
    directory.mkdir(parents=True)
    (directory / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj", "down_proj"]}))
    head = config["head_dim"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    modules = [("self_attn.q_proj", hidden, config["num_attention_heads"] * head),
               ("self_attn.v_proj", hidden, config["num_key_value_heads"] * head),
               ("mlp.down_proj", inner, hidden)]
    rng = random.Random(version)
    header, data = {}, []
    offset = 0
    for layer in range(config["num_hidden_layers"]):
        for name, wide, out in modules:
            for part, shape in (("lora_A", [RANK, wide]), ("lora_B", [out, RANK])):
                values = array("f", (rng.uniform(-0.06, 0.06) for _ in range(shape[0] * shape[1])))
                header[f"base_model.model.model.layers.{layer}.{name}.{part}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
                offset += 4 * len(values)
                data.append(values.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    if version % 2 == 1:
        (directory / "chat_template.jinja").write_text(
            "{{ bos_token }}version " + "abcdefghijklmnop"[version] +
            ": {% for m in messages %}{{ m['content'] }} {% endfor %}")


def ask(server, model, prompt, choices=1):
    """Returns the parts of the answer by which versions differ, for all choices; or None and a reason."""
    status, _, body = server.request("POST", "/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0,
        "logprobs": True, "n": choices})
    if status != 200:
        return None, f"{status} {body['error']['message']}"
    answers = set()
    for choice in body["choices"]:
        tokens = [(token["token"], token["logprob"]) for token in choice["logprobs"]["content"]]
        answers.add(json.dumps([choice["message"]["content"], tokens]))
    return " and ".join(sorted(answers)), None


def anonymous_kb(process):
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise RuntimeError("no RssAnon")


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rng = random.Random(5)
        self.scratch = Path(tempfile.mkdtemp(prefix="chorus-soak-"))
        self.served = self.scratch / "adapters"
        self.served.mkdir()
        config = json.loads((arguments.demo / "base" / "config.json").read_text())
        for version in range(VERSIONS):
            write_version(self.scratch / f"v{version}", config, version)
            shutil.copytree(self.scratch / f"v{version}", self.served / f"version-{version}")
        self.lock = threading.Lock()
        # name -> list of version, from, until; the last entry is open.
        self.history = {}
        for i, name in enumerate(NAMES):
            shutil.copytree(self.scratch / f"v{i}", self.served / name)
            self.history[name] = [(i, 0.0, None)]
        for version in range(VERSIONS):
            self.history[f"version-{version}"] = [(version, 0.0, None)]
        self.known = {}
        self.counts = {"answers": 0, "refused": 0, "replaced": 0}
        self.faults = []
        self.stop = threading.Event()

    def learn(self, server):
        for prompt in PROMPTS:
            for version in range(VERSIONS):
                answer, error = ask(server, f"version-{version}", prompt)
                if error:
                    raise RuntimeError(error)
                if (prompt, answer) in self.known:
                    raise RuntimeError("two versions say the same")
                self.known[(prompt, answer)] = version

    def client(self, server, seed):
        rng = random.Random(seed)
        while not self.stop.is_set():
            # Requests for adapters that stay the same evict the replaced ones, which are then loaded again.
            name = rng.choice(NAMES) if rng.random() < 0.6 else f"version-{rng.randrange(VERSIONS)}"
            prompt = rng.choice(PROMPTS)
            begin = time.monotonic()
            try:
                answer, error = ask(server, name, prompt, rng.choice([1, 1, 1, 4]))
            except OSError as fault:
                answer, error = None, f"connection: {fault}"
            end = time.monotonic()
            with self.lock:
                if error:
                    self.counts["refused"] += 1
                    # A load during a replacement may be refused with 409; any other failure is a fault.
                    if not error.startswith("409 "):
                        self.faults.append(error)
                    continue
                self.counts["answers"] += 1
                version = self.known.get((prompt, answer))
                if version is None:
                    self.faults.append(f"{name}: a mixed answer: {answer}")
                    continue
                if not any(v == version and start <= end and (until is None or until + LAG_S >= begin)
                           for v, start, until in self.history[name]):
                    self.faults.append(f"{name}: version {version} at {begin:.2f}, {self.history[name][-3:]}")

    def replace(self, name):
        version = self.rng.choice([v for v in range(VERSIONS) if v != self.history[name][-1][0]])
        source, target = self.scratch / f"v{version}", self.served / name
        with self.lock:
            self.history[name].append((version, time.monotonic(), None))
        if self.rng.random() < 0.5:
            new, old = self.served / ".new", self.scratch / "old"
            shutil.copytree(source, new)
            target.rename(old)
            new.rename(target)
            shutil.rmtree(old)
        else:
            weights = (source / "adapter_model.safetensors").read_bytes()
            with open(target / "adapter_model.safetensors", "r+b" if self.rng.random() < 0.5 else "wb") as file:
                half = len(weights) // 2
                file.write(weights[:half])
                file.flush()
                time.sleep(self.rng.random() * 0.4)
                file.write(weights[half:])
                file.truncate()
            shutil.copyfile(source / "adapter_config.json", target / "adapter_config.json")
            template = "chat_template.jinja"
            if (source / template).exists():
                shutil.copyfile(source / template, target / template)
            elif (target / template).exists():
                (target / template).unlink()
        with self.lock:
            before = self.history[name][-2]
            self.history[name][-2] = (before[0], before[1], time.monotonic())
            self.counts["replaced"] += 1

    def run(self):
        seconds = self.arguments.minutes * 60
        with ServerProcess(self.arguments.chorus, [
                self.arguments.demo / "base", "--lora_dir", self.served, "--lora_refresh_interval", 1,
                "--lora_refresh", "replace", "--cache_dir", self.scratch / "cache", "--log_level", "warning",
                "--max_lora_rank", RANK, "--max_cpu_loras", 6, "--max_gpu_loras", 6]) as server:
            self.learn(server)
            threads = [threading.Thread(target=self.client, args=(server, i)) for i in range(CLIENTS)]
            for thread in threads:
                thread.start()
            begin = time.monotonic()
            memory = None
            while time.monotonic() - begin < seconds and not self.faults:
                self.replace(self.rng.choice(NAMES))
                time.sleep(self.rng.uniform(0.2, 3))
                if memory is None and time.monotonic() - begin > seconds / 5:
                    memory = anonymous_kb(server.process)
            self.stop.set()
            for thread in threads:
                thread.join()
            after = anonymous_kb(server.process)
            log = server.log
        shutil.rmtree(self.scratch, ignore_errors=True)
        seen = {v for history in self.history.values() for v, _, _ in history}
        print(f"{self.counts['answers']} answers of {len(seen)} versions over {self.counts['replaced']} replacements, "
              f"{self.counts['refused']} asked to try again; anonymous memory {memory} kB after a fifth, then {after} kB")
        if memory is not None and after - memory > max(memory // 50, 4096):
            self.faults.append(f"anonymous memory grew from {memory} to {after} kB")
        if self.counts["answers"] == 0 or self.counts["replaced"] == 0:
            self.faults.append("nothing was asked or replaced")
        if self.faults:
            sys.exit("\n".join(self.faults[:10]) + "\n" + log[-2000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--minutes", type=float, default=60)
    Soak(parser.parse_args()).run()


if __name__ == "__main__":
    main()
