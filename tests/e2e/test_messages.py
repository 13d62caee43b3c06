"""Anthropic's Messages API with the real client."""

import unittest

import anthropic

import setting

TWO_DOGS = [{"role": "user", "content": "two dogs"}]


def ask(**options):
    """Fields that the client has no argument for are sent in the body."""
    extra = {"temperature": 0, **options.pop("extra_body", {})}
    return setting.anthropic_client().messages.create(
        **{"model": "base", "max_tokens": 64, "messages": TWO_DOGS, **options}, extra_body=extra)


class Messages(unittest.TestCase):
    def test_every_model_answers_as_peft_does(self):
        for row in setting.expected(1):
            answer = ask(model=setting.model_of(row), messages=[{"role": "user", "content": row["prompt"]}])
            self.assertEqual([block.text for block in answer.content], [row["text"]])
            self.assertEqual((answer.role, answer.type, answer.model), ("assistant", "message", setting.model_of(row)))
            self.assertEqual((answer.stop_reason, answer.stop_sequence), ("end_turn", None))
            self.assertEqual(answer.usage.input_tokens + answer.usage.cache_read_input_tokens, len(row["prompt_ids"]))
            self.assertEqual(answer.usage.output_tokens, len(row["generated_ids"]))
            self.assertTrue(answer._request_id.startswith("req-"))

    def test_reasons_for_the_end(self):
        whole = ask().content[0].text
        stop = whole[4:9]
        stopped = ask(stop_sequences=["\u0001", stop])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(stopped.content[0].text, whole[:whole.index(stop)])
        self.assertEqual(ask(max_tokens=2).stop_reason, "max_tokens")

    def test_systems_blocks_and_continued_answers_are_those_of_a_chat(self):
        def chat(messages, **extra):
            return setting.client().chat.completions.create(model="base", temperature=0, max_tokens=24, messages=messages,
                                                            extra_body=extra).choices[0].message.content
        system = {"role": "system", "content": "be brief\nin rhyme"}
        blocks = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "in rhyme"}]
        turns = [{"role": "user", "content": "two dogs"}, {"role": "assistant", "content": "I see two dogs."},
                 {"role": "user", "content": "one cat"}]
        self.assertEqual(ask(system=blocks, messages=turns, max_tokens=24).content[0].text, chat([system, *turns]))
        begun = [*TWO_DOGS, {"role": "assistant", "content": "I see two"}]
        self.assertEqual(ask(messages=begun, max_tokens=24).content[0].text,
                         chat(begun, add_generation_prompt=False, continue_final_message=True))

    def test_streams(self):
        row = next(row for row in setting.expected(1) if row["adapter"])
        messages = [{"role": "user", "content": row["prompt"]}]
        events = list(ask(model=row["adapter"], messages=messages, stream=True))
        kinds = [event.type for event in events]
        self.assertEqual([kind for kind in kinds if kind != "content_block_delta"],
                         ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"])
        self.assertEqual("".join(event.delta.text for event in events if event.type == "content_block_delta"), row["text"])
        self.assertEqual(events[-2].delta.stop_reason, "end_turn")
        self.assertEqual(events[-2].usage.output_tokens, len(row["generated_ids"]))
        with setting.anthropic_client().messages.stream(model=row["adapter"], messages=messages, max_tokens=64,
                                                        extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), row["text"])
            self.assertEqual(stream.get_final_message().usage.output_tokens, len(row["generated_ids"]))

    def test_tokens_are_counted(self):
        row = setting.expected(1)[0]
        count = setting.anthropic_client().messages.count_tokens(
            model="base", messages=[{"role": "user", "content": row["prompt"]}])
        self.assertEqual(count.input_tokens, len(row["prompt_ids"]))


class Errors(unittest.TestCase):
    def refused(self, kind, type_, **options):
        with self.assertRaises(kind) as caught:
            ask(**options)
        body = caught.exception.body
        self.assertEqual((body["type"], body["error"]["type"]), ("error", type_))
        self.assertEqual(body["request_id"], caught.exception.request_id)
        return body["error"]["message"]

    def test_errors_have_anthropics_form(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
        bad, name = anthropic.BadRequestError, "invalid_request_error"
        self.assertIn("not 'image'", self.refused(bad, name, messages=[{"role": "user", "content": [image]}]))
        self.assertIn("'tools'", self.refused(bad, name, tools=[{"name": "f", "input_schema": {"type": "object"}}]))
        self.assertIn("'thinking'", self.refused(bad, name, thinking={"type": "enabled", "budget_tokens": 2000}))
        self.assertIn("'max_tokens' is too large", self.refused(bad, name, max_tokens=5000))
        self.assertIn("`nobody`", self.refused(anthropic.NotFoundError, "not_found_error", model="nobody"))
        self.refused(anthropic.RequestTooLargeError, "request_too_large", messages=[{"role": "user", "content": "x" * (9 << 20)}])

    def test_errors_below_the_routes_have_it_too(self):
        server = setting.shared_server()
        for method, path, body, status, type_ in (
                ("POST", "/v1/messages", "{", 400, "invalid_request_error"), ("GET", "/v1/messages", None, 405, "invalid_request_error"),
                ("POST", "/v1/messages/batches", {}, 404, "not_found_error")):
            got, headers, answer = server.request(method, path, body, {"x-request-id": "mine"})
            self.assertEqual((got, answer["error"]["type"], answer["request_id"]), (status, type_, "mine"))
            self.assertEqual((headers["request-id"], headers["x-request-id"]), ("mine", "mine"))
        self.assertNotIn("request-id", server.request("GET", "/v1/models")[1])
