"""Requests that are refused, and the form of the refusal."""

import unittest

import openai

import setting

OK = {"model": "base", "prompt": "two dogs", "max_tokens": 4, "temperature": 0}


class Refusals(unittest.TestCase):
    def setUp(self):
        self.server = setting.shared_server()

    def tearDown(self):
        self.assertEqual(self.server.request("POST", "/v1/completions", OK)[0], 200, "the server goes on")

    def refused(self, body, status, path="/v1/completions", **options):
        got, headers, answer = self.server.request("POST", path, body, **options)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer), {"error"})
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        self.assertIn("x-request-id", headers)
        self.assertNotRegex(answer["error"]["message"], r"(^|\s)/(?!v1/)", "no path of the server")
        return answer["error"]

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            setting.client().completions.create(model="nobody", prompt="x")
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertEqual(caught.exception.param, "model")
        self.assertIn("The model `nobody` does not exist", str(caught.exception))
        self.assertTrue(caught.exception.request_id)
        with self.assertRaises(openai.NotFoundError):
            setting.client().models.retrieve("../base")

    def test_fields(self):
        for field, value in [("max_tokens", 0), ("max_tokens", "many"), ("temperature", 3), ("top_p", -1),
                             ("top_k", "x"), ("min_p", 2), ("n", 0), ("n", 10**9), ("seed", 1.5), ("stop", 7),
                             ("stream", "yes"), ("prompt", None), ("prompt", []), ("prompt", {}),
                             ("prompt", [10**6]), ("logprobs", 99), ("stop_token_ids", "x"),
                             ("logit_bias", {"x": 5}), ("presence_penalty", 3), ("best_of", 0), ("suffix", "x"),
                             ("response_format", {"type": "json_object"})]:
            with self.subTest(field=field, value=value):
                self.assertEqual(self.refused({**OK, field: value}, 400)["param"], field)
        with self.assertRaises(openai.BadRequestError):
            setting.client().completions.create(model="base", prompt="x", temperature=9)

    def test_chat_fields(self):
        chat = {"model": "base", "messages": [{"role": "user", "content": "two dogs"}], "max_tokens": 4}
        for changed in [{"messages": []}, {"messages": "x"}, {"messages": [{"role": "user"}]},
                        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
                        {"messages": [{"role": "nobody", "content": "the template refuses it"}]},
                        {"tool_choice": "required"}, {"top_logprobs": 3}, {"max_completion_tokens": -1}]:
            with self.subTest(changed=changed):
                self.refused({**chat, **changed}, 400, path="/v1/chat/completions")

    def test_too_long(self):
        self.assertEqual(self.refused({**OK, "prompt": [5] * 2000}, 400)["code"], "context_length_exceeded")
        self.assertEqual(self.refused({**OK, "max_tokens": 5000}, 400)["code"], "context_length_exceeded")
        self.assertEqual(self.refused({**OK, "prompt": "dogs " * 200_000}, 400)["code"], "context_length_exceeded")

    def test_bodies(self):
        for body in ["", "{", "[]", "null", '{"model": "base",}', b'{"model":"\xff"}', "[" * 100_000, '{"n":1e999}']:
            with self.subTest(body=body[:20]):
                self.refused(body, 400)
        self.refused("{}", 415, headers={"content-type": "text/plain"})
        self.refused("x" * (9 << 20), 413)

    def test_paths_and_methods(self):
        self.refused(OK, 404, path="/v1/nothing")
        self.refused(OK, 405, path="/v1/models")
        status, headers, _ = self.server.request("GET", "/v1/completions")
        self.assertEqual((status, headers["allow"]), (405, "POST"))

    def test_request_id_is_kept(self):
        headers = self.server.request("POST", "/v1/completions", OK, {"X-Request-Id": "my-id-1"})[1]
        self.assertEqual(headers["x-request-id"], "my-id-1")
