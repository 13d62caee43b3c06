"""Loading, replacing and unloading adapters by requests (--enable_admin)."""

import json
import shutil
import threading
import unittest

import setting
from server_process import ServerProcess
from test_starting import spoil_values


def text_of(server, method, path, body=None):
    """Status and body, which may be plain text."""
    connection = server.connect()
    try:
        headers = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def answer(server, model, row):
    return setting.client(server).chat.completions.create(
        model=model, messages=[{"role": "user", "content": row["prompt"]}], temperature=0).choices[0].message.content


def row_of(adapter):
    return next(row for row in setting.expected() if row["adapter"] == adapter)


class ByRequest(unittest.TestCase):
    def arguments(self, *more):
        return [setting.demo / "base", "--dtype", "float32", "--cache_dir", setting.scratch() / "cache", *more]

    def test_load_replace_unload(self):
        store = setting.scratch() / "by-request"
        for name in ("roman", "shout"):
            shutil.copytree(setting.demo / "adapters" / name, store / name)
        (store / "way").symlink_to(setting.demo / "adapters")
        roman, shout = row_of("roman"), row_of("shout")
        arguments = self.arguments("--enable_admin", "--lora_allowed_roots", store)
        with ServerProcess(setting.chorus, arguments) as server:

            def load(name, path, **more):
                return text_of(server, "POST", "/v1/load_lora_adapter",
                               {"lora_name": name, "lora_path": str(path), **more})
            self.assertEqual(load("a", store / "roman"), (200, "Success: LoRA adapter 'a' added successfully."))
            self.assertEqual(answer(server, "a", roman), roman["text"])
            self.assertEqual(load("a", store / "shout")[0], 400)

            # Streams that run while the adapter is replaced have one content or the other, never a mixture.
            solo = {}

            def stream(seen):
                chunks = setting.client(server).completions.create(
                    model="a", prompt=roman["prompt"], max_tokens=40, temperature=0, stream=True,
                    extra_body={"ignore_eos": True})
                seen.append("".join(chunk.choices[0].text for chunk in chunks))
            for content in ("roman", "shout"):
                self.assertEqual(load("a", store / content, load_inplace=True)[0], 200)
                seen = []
                stream(seen)
                solo[content] = seen[0]
            self.assertNotEqual(solo["roman"], solo["shout"])
            seen = []
            threads = [threading.Thread(target=stream, args=(seen,)) for _ in range(8)]
            for number, thread in enumerate(threads):
                thread.start()
                content = ("roman", "shout")[number % 2]
                self.assertEqual(load("a", store / content, load_inplace=True)[0], 200)
            for thread in threads:
                thread.join()
            self.assertEqual(len(seen), 8)
            self.assertLessEqual(set(seen), set(solo.values()))
            self.assertEqual(answer(server, "a", shout), shout["text"])

            states = json.loads(text_of(server, "GET", "/v1/admin/adapters")[1])["data"]
            self.assertEqual([state["name"] for state in states], ["a"])
            self.assertIn(states[0]["state"], ("host", "device"))
            self.assertEqual(len(states[0]["content_hash"]), 64)

            for path in (setting.demo / "adapters" / "roman", store / "way" / "roman", store / ".." / "x", "/"):
                status, body = load("b", path)
                self.assertEqual(status, 400, body)
                self.assertNotIn(str(store), body)
            self.assertEqual(load("b", store / "absent")[0], 404)

            unload = {"lora_name": "a"}
            self.assertEqual(text_of(server, "POST", "/v1/unload_lora_adapter", unload),
                             (200, "Success: LoRA adapter 'a' removed successfully."))
            self.assertEqual(text_of(server, "POST", "/v1/unload_lora_adapter", unload)[0], 404)
            self.assertEqual(server.request("POST", "/v1/completions", {"model": "a", "prompt": "x"})[0], 404)

    def test_an_adapter_that_cannot_be_served_is_refused_with_the_reason(self):
        store = setting.scratch() / "refused"
        shutil.copytree(setting.demo / "adapters" / "roman", store / "bad")
        spoil_values(store / "bad" / "adapter_model.safetensors")
        arguments = self.arguments("--enable_admin", "--lora_allowed_roots", store)
        with ServerProcess(setting.chorus, arguments) as server:
            cases = (("/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": "bad"}),
                     ("/adapters", {"name": "bad", "src": "bad", "preload": True}),
                     ("/adapters", {"name": "bad", "src": "bad", "pin": True}))
            for path, body in cases:
                status, text = text_of(server, "POST", path, body)
                self.assertEqual(status, 400, text)
                error = json.loads(text)["error"]
                self.assertEqual(error["code"], "adapter_refused")
                self.assertRegex(error["message"], "^The adapter 'bad' cannot be served: adapter_model.*not finite")
                self.assertNotIn(str(store), text)
                self.assertEqual(server.request("GET", "/v1/models/bad")[0], 404)

            # Without them the first request reads the values.
            self.assertEqual(text_of(server, "POST", "/adapters", {"name": "bad", "src": "bad"})[0], 200)
            for model, status, code in (("bad", 400, "adapter_refused"), ("bad", 404, "model_not_found")):
                answered, _, body = server.request("POST", "/v1/completions", {"model": model, "prompt": "x"})
                self.assertEqual((answered, body["error"]["param"], body["error"]["code"]), (status, "model", code))
        lines = [line for line in server.log_lines if "not finite" in line]
        self.assertEqual(len(lines), 3, "one for each load that began after the adapter was registered")

    def test_off_by_default(self):
        server = setting.shared_server()
        self.assertEqual(text_of(server, "GET", "/v1/admin/adapters")[0], 403)
        self.assertEqual(text_of(server, "POST", "/v1/unload_lora_adapter", {"lora_name": "roman"})[0], 403)


if __name__ == "__main__":
    unittest.main()
