"""Holds the server to its own description: real answers, events and errors are valid by /openapi.json."""

import json
import unittest

import jsonschema
import openapi_spec_validator

import setting

MESSAGES = [{"role": "user", "content": "two dogs"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "two dogs"}]}]
# Accepted bodies of every route that takes one. Those with "stream" are streamed too.
BODIES = {
    "/v1/completions": [{"model": "base", "prompt": "two", "max_tokens": 3, "stream": False},
                        {"model": "base", "prompt": [[5, 6], [7]], "max_tokens": 0, "echo": True, "logprobs": 2, "n": 1},
                        {"model": "base", "prompt": "the", "max_tokens": 4, "logprobs": 0, "stop": ["e"], "stream": False,
                         "stream_options": None, "best_of": 1}],
    "/v1/chat/completions": [{"model": "base", "messages": MESSAGES, "max_tokens": 3, "logprobs": True, "top_logprobs": 2,
                              "stream": False},
                             {"model": "base", "messages": PARTS, "temperature": 0.5, "seed": 3, "max_completion_tokens": 4,
                              "n": 2, "tools": [], "response_format": {"type": "text"}, "stream": False}],
    "/v1/responses": [{"model": "base", "input": "two dogs", "max_output_tokens": 3, "stream": False},
                      {"model": "base", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
                       "instructions": "be brief", "temperature": 0, "text": {"format": {"type": "text"}}, "stream": False},
                      {"model": "base", "input": "two dogs", "max_output_tokens": 3, "top_logprobs": 2, "stream": False,
                       "include": ["message.output_text.logprobs"]}],
    "/v1/messages": [{"model": "base", "messages": MESSAGES, "max_tokens": 3, "stream": False},
                     {"model": "base", "messages": PARTS, "system": "be brief", "max_tokens": 64, "stop_sequences": ["."],
                      "temperature": 0, "tool_choice": {"type": "auto"}, "stream": False}],
    "/v1/messages/count_tokens": [{"model": "base", "messages": MESSAGES}],
    "/tokenize": [{"prompt": "two dogs", "return_token_strs": True}, {"model": "base", "messages": PARTS}],
    "/v1/tokenize": [{"prompt": "two dogs", "model": None}],
    "/detokenize": [{"tokens": [5, 6, 7]}],
    "/v1/detokenize": [{"tokens": [], "model": "base"}],
}
# Bodies that the server refuses, and so does the schema.
BAD = {
    "/v1/completions": [{"prompt": "x"}, {"model": "base", "prompt": "x", "temperature": 3}, {"model": "base", "prompt": 5},
                        {"model": "base", "prompt": "x", "logprobs": 6}, {"model": "base", "prompt": "x", "suffix": "y"}],
    "/v1/chat/completions": [{"model": "base"}, {"model": "base", "messages": []}, {"model": "base", "messages": [{"role": 5}]},
                             {"model": "base", "messages": MESSAGES, "guided_regex": "a"},
                             {"model": "base", "messages": MESSAGES, "nvext": {"top_k": 5}},
                             {"model": "base", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}],
    "/v1/responses": [{"model": "base"}, {"model": "base", "input": "x", "background": True},
                      {"model": "base", "input": "x", "text": {"format": {"type": "json_object"}}},
                      {"model": "base", "input": "x", "include": ["file_search_call.results"]},
                      {"model": "base", "input": [{"type": "reasoning"}]}],
    "/v1/messages": [{"model": "base", "messages": MESSAGES}, {"model": "base", "max_tokens": 5, "messages": MESSAGES, "stop": "x"},
                     {"model": "base", "max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]}],
    "/v1/messages/count_tokens": [{"messages": MESSAGES}],
    "/tokenize": [{"prompt": 5}],
    "/v1/tokenize": [{"prompt": "x", "add_special_tokens": 1}],
    "/detokenize": [{"tokens": "x"}],
    "/v1/detokenize": [{}],
}
GETS = {"/v1/models/{name}": "/v1/models/base", "/v1/admin/adapters/{name}": "/v1/admin/adapters/red"}
# Refused without --enable_admin; test_admin_routes.py has their bodies.
ADMIN = {"/adapters", "/v1/admin/adapters", "/v1/admin/adapters/{name}", "/v1/admin/validate", "/v1/load_lora_adapter",
         "/v1/unload_lora_adapter", "/v1/admin/adapters/{name}/prefetch", "/v1/admin/adapters/{name}/rollback"}


class Description(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = setting.shared_server()
        cls.document = cls.server.request("GET", "/openapi.json")[2]

    def check(self, value, schema):
        resolved = {**schema, "components": self.document["components"]}
        jsonschema.Draft202012Validator(resolved).validate(value)

    def schema(self, content, kind="application/json"):
        return content[kind]["schema"]

    def operation(self, path, method):
        return self.document["paths"][path][method]

    def error_schema(self, operation):
        name = operation["responses"]["default"]["$ref"].rsplit("/", 1)[1]
        return self.schema(self.document["components"]["responses"][name]["content"])

    def test_the_document_is_openapi(self):
        openapi_spec_validator.validate(self.document)

    def test_every_route_is_tested_here(self):
        taking = {path for path, item in self.document["paths"].items() if "requestBody" in item.get("post", {})}
        self.assertEqual(taking - ADMIN, set(BODIES))
        self.assertEqual(taking - ADMIN, set(BAD))

    def test_answers_to_get(self):
        for path, item in self.document["paths"].items():
            if "get" not in item:
                continue
            for kind, content in item["get"]["responses"]["200"]["content"].items():
                if kind != "application/json":
                    continue
                status, _, answer = self.server.request("GET", GETS.get(path, path))
                with self.subTest(path=path):
                    self.assertEqual(status, 403 if path in ADMIN else 200)
                    self.check(answer, self.error_schema(item["get"]) if path in ADMIN else content["schema"])
        status, _, answer = self.server.request("GET", "/v1/models/nobody")
        self.assertEqual(status, 404)
        self.check(answer, self.error_schema(self.operation("/v1/models/{name}", "get")))

    def test_requests_and_answers(self):
        for path, bodies in BODIES.items():
            operation = self.operation(path, "post")
            for body in bodies:
                with self.subTest(path=path, body=body):
                    self.check(body, self.schema(operation["requestBody"]["content"]))
                    status, headers, answer = self.server.request("POST", path, body)
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(headers["content-type"], "application/json")
                    self.check(answer, self.schema(operation["responses"]["200"]["content"]))

    def test_events(self):
        for path, bodies in BODIES.items():
            content = self.operation(path, "post")["responses"]["200"]["content"]
            streamed = [body for body in bodies if "stream" in body]
            self.assertEqual(bool(streamed), "text/event-stream" in content, path)
            for body in streamed:
                events = self.events(path, {**body, "stream": True})
                self.assertGreater(len(events), 2)
                for event in events:
                    with self.subTest(path=path, event=event):
                        self.check(event, self.schema(content, "text/event-stream"))

    def events(self, path, body):
        connection = self.server.connect()
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            lines = connection.getresponse().read().decode().split("\n")
        finally:
            connection.close()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def test_refused_bodies_are_not_valid(self):
        for path, bodies in BAD.items():
            operation = self.operation(path, "post")
            for body in bodies:
                with self.subTest(path=path, body=body):
                    with self.assertRaises(jsonschema.ValidationError):
                        self.check(body, self.schema(operation["requestBody"]["content"]))
                    status, _, answer = self.server.request("POST", path, body)
                    self.assertEqual(status, 400, answer)
                    self.check(answer, self.error_schema(operation))
