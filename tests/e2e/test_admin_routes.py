"""Checking, uploading, pinning, prefetching and rolling back adapters (docs/adapters-at-run-time.md)."""

import json
import re
import shutil
import struct
import subprocess
import threading
import unittest
from pathlib import Path

import setting
from description import Description
from server_process import ServerProcess, wait_until
from test_adapter_routes import answer, row_of

PAGE = Path(__file__).resolve().parents[2] / "docs/adapters-at-run-time.md"
BINARY = {"content-type": "application/octet-stream"}


def description_of(server):
    if not hasattr(server, "description"):
        server.description = Description(server)
    return server.description


def send(server, method, path, body=None, headers=None):
    """Status and JSON of an answer. body: bytes, or an object that is sent as JSON. Both are held to /openapi.json."""
    connection = server.connect()
    sent = body
    try:
        if body is not None and not isinstance(body, bytes):
            sent, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        try:
            connection.request(method, path, sent, headers or {})
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer came before the whole body was sent
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    description = description_of(server)
    if description.operation(method, path) is not None:
        description.check_answer(method, path, response.status, response.headers["content-type"], text)
        if response.status < 300 and sent is not body:
            description.check_request(method, path, body)
    return response.status, json.loads(text)


def with_config(adapter, change=None):
    """The adapter as one safetensors file that has its configuration as metadata."""
    data = (adapter / "adapter_model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    config = (adapter / "adapter_config.json").read_text()
    header["__metadata__"] = {**header.get("__metadata__", {}), "adapter_config.json": config}
    values = bytearray(data[8 + size:])
    if change:
        change(header, values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(values)


class AdminRoutes(unittest.TestCase):
    def start(self, *more):
        self.store = setting.scratch() / f"store-{self.id()}"
        for name in ("roman", "shout"):
            shutil.copytree(setting.demo / "adapters" / name, self.store / name, dirs_exist_ok=True)
        self.uploads = setting.scratch() / f"uploads-{self.id()}"
        return ServerProcess(setting.chorus, [
            setting.demo / "base", "--dtype", "float32", "--cache_dir", setting.scratch() / "cache", "--enable_admin",
            "--lora_allowed_roots", self.store, "--lora_upload_dir", self.uploads, *more])

    def test_the_commands_of_the_page(self):
        commands = re.findall(r"^(curl (?:.*\\\n)*.*)", PAGE.read_text(), flags=re.M)
        self.assertGreater(len(commands), 7)
        folder = setting.scratch() / "commands"
        shutil.copytree(setting.demo / "adapters" / "shout", folder / "roman")
        with self.start() as server:
            for command in commands:
                text = command.replace("localhost:8000", server.url.removeprefix("http://")).replace("/srv/store", str(self.store))
                done = subprocess.run(["bash", "-c", text + " -sS -w '\\n%{http_code}'"], cwd=folder, capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                body, _, status = done.stdout.rpartition("\n")
                self.assertEqual(status, "200", f"{command}: {body}")
                method = re.search(r"-X (\w+)", command)
                method = method[1] if method else "POST" if " -d " in command or " -F " in command else "GET"
                path = re.search(r"localhost:8000(\S+)", command)[1]
                description_of(server).check_answer(method, path, 200, "application/json", body)

    def test_uploads_are_published_and_rolled_back(self):
        roman, shout = row_of("roman"), row_of("shout")
        path = "/v1/admin/adapters/student"
        with self.start() as server:
            status, first = send(server, "PUT", path, with_config(self.store / "roman"), BINARY)
            self.assertEqual((status, first["status"]), (200, "added"), first)
            self.assertEqual(answer(server, "student", roman), roman["text"])
            status, second = send(server, "PUT", path, with_config(self.store / "shout"), BINARY)
            self.assertEqual((status, second["status"]), (200, "replaced"), second)
            self.assertEqual(answer(server, "student", shout), shout["text"])
            state = send(server, "GET", path)[1]
            self.assertEqual(state["content_hash"], second["content_hash"])
            self.assertEqual([one["content_hash"] for one in state["earlier"]], [first["content_hash"]])
            self.assertTrue(state["uploaded"])
            self.assertEqual(send(server, "POST", path + "/rollback")[1]["content_hash"], first["content_hash"])
            self.assertEqual(answer(server, "student", roman), roman["text"])
            status, error = send(server, "POST", path + "/rollback", {"content_hash": "00"})
            self.assertEqual(status, 404, error)

            # A replacement that cannot be served changes nothing, and its error names no path of the server.
            def not_finite(_, values):
                values[0:4] = struct.pack("<f", float("nan"))
            status, error = send(server, "PUT", path, with_config(self.store / "shout", not_finite), BINARY)
            self.assertEqual(status, 400)
            self.assertIn("not finite", error["error"]["message"])
            self.assertNotIn(str(self.uploads), json.dumps(error))
            self.assertEqual(answer(server, "student", roman), roman["text"])
            self.assertEqual(send(server, "DELETE", path)[0], 200)
            self.assertEqual(send(server, "GET", path)[0], 404)
        self.assertEqual(list(self.uploads.iterdir()), [], "a server that ends leaves nothing")

    def test_requests_beside_replacements_have_one_content(self):
        bodies = {name: with_config(self.store_of(name)) for name in ("roman", "shout")}
        prompt = row_of("roman")["prompt"]
        with self.start() as server:
            def texts(count):
                chunks = setting.client(server).completions.create(
                    model="a", prompt=prompt, max_tokens=40, temperature=0, stream=True, extra_body={"ignore_eos": True})
                count.append("".join(chunk.choices[0].text for chunk in chunks))
            solo = []
            for body in bodies.values():
                self.assertEqual(send(server, "PUT", "/v1/admin/adapters/a", body, BINARY)[0], 200)
                texts(solo)
            self.assertEqual(len(set(solo)), 2)
            self.assertEqual(send(server, "POST", "/v1/admin/adapters/a/pin")[1], {"name": "a", "pinned": True})
            seen, threads = [], []
            for number in range(8):
                threads.append(threading.Thread(target=texts, args=(seen,)))
                threads[-1].start()
                body = bodies[("roman", "shout")[number % 2]]
                self.assertEqual(send(server, "PUT", "/v1/admin/adapters/a", body, BINARY)[0], 200)
            for thread in threads:
                thread.join()
            self.assertEqual(len(seen), 8)
            self.assertLessEqual(set(seen), set(solo))
            self.assertTrue(send(server, "GET", "/v1/admin/adapters/a")[1]["pinned"])

    def store_of(self, name):
        return setting.demo / "adapters" / name

    def test_pins_and_prefetches(self):
        with self.start("--max_cpu_loras", "2", "--max_gpu_loras", "2", "--max_lora_rank", "64") as server:
            for name in ("roman", "shout"):
                self.assertEqual(send(server, "PUT", f"/v1/admin/adapters/{name}", {"path": name})[0], 200)
                self.assertEqual(send(server, "POST", f"/v1/admin/adapters/{name}/prefetch"),
                                 (200, {"name": name, "status": "loaded"}))
            status, later = send(server, "POST", "/v1/admin/adapters/roman/prefetch", {"wait": False})
            self.assertEqual((status, later["status"]), (202, "loading"))
            self.assertEqual(send(server, "POST", "/v1/admin/adapters/roman/pin")[0], 200)
            listed = {one["name"]: one for one in send(server, "GET", "/v1/admin/adapters")[1]["data"]}
            self.assertTrue(listed["roman"]["pinned"])
            self.assertFalse(listed["shout"]["pinned"])
            self.assertTrue(wait_until(lambda: send(server, "GET", "/v1/admin/adapters/roman")[1]["users"] == 0))
            self.assertEqual(send(server, "DELETE", "/v1/admin/adapters/roman/pin")[1]["pinned"], False)

    def test_validation_has_a_verdict_for_each_tensor(self):
        with self.start() as server:
            status, report = send(server, "POST", "/v1/admin/validate", {"path": "roman"})
            self.assertEqual(status, 200, report)
            self.assertTrue(report["accepted"], report)
            self.assertGreater(report["host_bytes"], 0)
            self.assertGreater(report["rank"], 0)
            self.assertTrue(all(one["verdict"] == "used" and one["target"] for one in report["tensors"]))
            self.assertEqual(len(report["tensors"]), report["tensor_count"])

            # Two faults in two modules: both tensors are named, and the modules' other tensors too.
            def broken(header, _):
                names = [name for name in header if name.endswith("lora_A.weight")]
                header[names[0].replace("self_attn", "other").replace("mlp", "other")] = header.pop(names[0])
                header[names[-1]]["shape"] = header[names[-1]]["shape"][::-1]
            status, report = send(server, "POST", "/v1/admin/validate",
                                  with_config(self.store / "roman", broken), BINARY)
            self.assertEqual(status, 200, report)
            self.assertFalse(report["accepted"])
            self.assertIsNone(report["content_hash"])
            refused = [one for one in report["tensors"] if one["verdict"] == "refused"]
            self.assertEqual(report["tensors"][:len(refused)], refused)
            self.assertGreaterEqual(len(refused), 3)
            self.assertTrue(any("has shape" in one["reason"] for one in refused))
            self.assertTrue(any("adapts no module" in one["reason"] for one in refused))
            self.assertTrue(any(one["verdict"] == "used" for one in report["tensors"]))
            self.assertNotIn(str(setting.scratch()), json.dumps(report))
            self.assertEqual(send(server, "GET", "/v1/admin/adapters")[1]["data"], [])

    def test_other_routes_answer_as_described(self):
        """The routes of vLLM and SageMaker, and refusals of every admin route."""
        with self.start() as server:
            description = description_of(server)

            def text_of(method, path, body=None):
                connection = server.connect()
                try:
                    sent = None if body is None else json.dumps(body).encode()
                    connection.request(method, path, sent, {"content-type": "application/json"} if sent else {})
                    response = connection.getresponse()
                    text = response.read()
                finally:
                    connection.close()
                description.check_answer(method, path, response.status, response.headers["content-type"], text)
                if response.status < 300 and body is not None:
                    description.check_request(method, path, body)
                return response.status
            roman = str(self.store / "roman")
            load = {"lora_name": "a", "lora_path": roman}
            self.assertEqual(text_of("POST", "/v1/load_lora_adapter", load), 200)
            self.assertEqual(text_of("POST", "/v1/load_lora_adapter", load), 400)
            self.assertEqual(text_of("POST", "/v1/load_lora_adapter", {**load, "load_inplace": True}), 200)
            self.assertEqual(text_of("POST", "/v1/unload_lora_adapter", {"lora_name": "a"}), 200)
            self.assertEqual(text_of("POST", "/v1/unload_lora_adapter", {"lora_name": "a"}), 404)
            self.assertEqual(text_of("POST", "/adapters", {"name": "b", "src": roman, "preload": True}), 200)
            self.assertEqual(text_of("GET", "/adapters"), 200)
            self.assertEqual(text_of("DELETE", "/adapters/b"), 200)
            self.assertEqual(text_of("DELETE", "/adapters/b"), 404)
            for method, path, body in (("GET", "/v1/admin/adapters/none", None), ("DELETE", "/v1/admin/adapters/none", None),
                                       ("POST", "/v1/admin/adapters/none/pin", None),
                                       ("DELETE", "/v1/admin/adapters/none/pin", None),
                                       ("POST", "/v1/admin/adapters/none/prefetch", {}),
                                       ("POST", "/v1/admin/adapters/none/rollback", {}),
                                       ("POST", "/v1/admin/validate", {"path": "absent"})):
                with self.subTest(method=method, path=path):
                    self.assertEqual(text_of(method, path, body), 404)
            self.assertEqual(text_of("POST", "/v1/admin/validate", {}), 400)
            self.assertEqual(text_of("PUT", "/v1/admin/adapters/c", {"path": ""}), 400)

    def test_uploads_are_bounded(self):
        with self.start("--lora_upload_limit", "9", "--lora_upload_space", "1") as server:
            body = with_config(self.store / "roman")
            too_large = body + bytes((9 << 20) + 1 - len(body))
            status, _ = send(server, "PUT", "/v1/admin/adapters/a", too_large, BINARY)
            self.assertEqual(status, 413)
            header = {"t": {"dtype": "F32", "shape": [1 << 19], "data_offsets": [0, 1 << 21]},
                      "__metadata__": {"adapter_config.json": "{}"}}
            text = json.dumps(header).encode()
            full = struct.pack("<Q", len(text)) + text + bytes(1 << 21)
            status, error = send(server, "PUT", "/v1/admin/adapters/a", full, BINARY)
            self.assertEqual(status, 507, error)
            status, _ = send(server, "PUT", "/v1/completions", bytes(9 << 20), BINARY)
            self.assertEqual(status, 413, "other routes take what they took")
            self.assertEqual(send(server, "GET", "/v1/admin/adapters")[1]["data"], [])


if __name__ == "__main__":
    unittest.main()
