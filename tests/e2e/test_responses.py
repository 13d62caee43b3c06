"""OpenAI's Responses API with the real client."""

import unittest

import openai

import setting


def respond(**options):
    extra = options.pop("extra_body", None)
    return setting.client().responses.create(
        **{"model": "base", "max_output_tokens": 64, "temperature": 0, "input": "two dogs", **options}, extra_body=extra)


class Responses(unittest.TestCase):
    def test_every_model_answers_as_peft_does(self):
        for row in setting.expected(1):
            answer = respond(model=setting.model_of(row), input=row["prompt"])
            self.assertEqual(answer.output_text, row["text"])
            self.assertEqual(answer.status, "completed")
            self.assertIsNone(answer.incomplete_details)
            self.assertEqual(answer.model, setting.model_of(row))
            self.assertEqual(answer.usage.input_tokens, len(row["prompt_ids"]))
            self.assertEqual(answer.usage.output_tokens, len(row["generated_ids"]))
            self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)

    def test_conversations_are_those_of_a_chat(self):
        chat = setting.client().chat.completions.create(
            model="base", temperature=0, max_tokens=24, messages=[
                {"role": "system", "content": "be brief"}, {"role": "user", "content": "two dogs"},
                {"role": "assistant", "content": "I see two dogs."}, {"role": "user", "content": "one cat"}])
        first = respond(input="two dogs", instructions="be brief", max_output_tokens=24)
        answer = respond(instructions="be brief", max_output_tokens=24, input=[
            {"role": "user", "content": "two dogs"},
            {"role": "assistant", "type": "message", "status": "completed", "id": "msg_1",
             "content": [{"type": "output_text", "text": "I see two dogs.", "annotations": []}]},
            {"role": "user", "content": [{"type": "input_text", "text": "one cat"}]}])
        self.assertEqual(answer.output_text, chat.choices[0].message.content)
        self.assertEqual(answer.usage.input_tokens, chat.usage.prompt_tokens)
        # The output of an answer is an item of the next input.
        again = respond(input=[{"role": "user", "content": "two dogs"}, *first.output, {"role": "user", "content": "one cat"}])
        self.assertEqual(again.status, "completed")

    def test_a_short_answer_is_incomplete(self):
        answer = respond(max_output_tokens=2, metadata={"run": "1"}, store=True, user="someone", text={"format": {"type": "text"}})
        self.assertEqual(answer.status, "incomplete")
        self.assertEqual(answer.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(answer.usage.output_tokens, 2)
        self.assertEqual(answer.metadata, {"run": "1"})

    def test_streams_have_all_events(self):
        row = next(row for row in setting.expected(1) if row["adapter"])
        events = list(respond(model=row["adapter"], input=row["prompt"], stream=True))
        types = [event.type for event in events]
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), row["text"])
        self.assertEqual([kind for kind in types if kind != "response.output_text.delta"],
                         ["response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"])
        self.assertEqual(events[-1].response.output_text, row["text"])
        self.assertEqual(events[-1].response.usage.output_tokens, len(row["generated_ids"]))
        self.assertEqual(list(respond(max_output_tokens=2, stream=True))[-1].type, "response.incomplete")

    def test_the_helper_of_the_client_collects_a_stream(self):
        row = setting.expected(1)[0]
        with setting.client().responses.stream(model="base", input=row["prompt"], temperature=0) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, row["text"])

    def test_log_probabilities_are_those_of_a_chat(self):
        row = next(row for row in setting.expected(1) if row["adapter"])
        asked = {"model": row["adapter"], "max_output_tokens": 12, "include": ["message.output_text.logprobs"], "top_logprobs": 3}
        chat = setting.client().chat.completions.create(
            model=row["adapter"], temperature=0, max_tokens=12, logprobs=True, top_logprobs=3,
            messages=[{"role": "user", "content": row["prompt"]}]).choices[0].logprobs.content
        self.assertGreater(len(chat), 3)

        def plain(tokens):
            return [(one.token, one.logprob, one.bytes, [(top.token, top.logprob, top.bytes) for top in one.top_logprobs])
                    for one in tokens]
        answer = respond(input=row["prompt"], **asked)
        self.assertEqual(answer.top_logprobs, 3)
        self.assertEqual(plain(answer.output[0].content[0].logprobs), plain(chat))
        events = list(respond(input=row["prompt"], stream=True, **asked))
        streamed = [one for event in events if event.type == "response.output_text.delta" for one in event.logprobs]
        self.assertEqual([(one.token, one.logprob, [(top.token, top.logprob) for top in one.top_logprobs]) for one in streamed],
                         [(one.token, one.logprob, [(top.token, top.logprob) for top in one.top_logprobs]) for one in chat])
        done = next(event for event in events if event.type == "response.output_text.done")
        self.assertEqual([one.logprob for one in done.logprobs], [one.logprob for one in chat])
        self.assertEqual(plain(events[-1].response.output[0].content[0].logprobs), plain(chat))
        # The output of an answer with log probabilities is an item of the next input.
        again = respond(input=[{"role": "user", "content": row["prompt"]}, *answer.output, {"role": "user", "content": "one cat"}])
        self.assertIn(again.status, ("completed", "incomplete"))

    def test_what_needs_state_tools_or_images_is_refused_by_name(self):
        image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}]}]
        for param, options in {
                "previous_response_id": {"previous_response_id": "resp_1"}, "background": {"background": True},
                "conversation": {"conversation": "conv_1"}, "tools": {"tools": [{"type": "web_search"}]},
                "text.format": {"text": {"format": {"type": "json_object"}}}, "reasoning": {"reasoning": {"effort": "high"}},
                "truncation": {"truncation": "auto"}, "include": {"include": ["file_search_call.results"]},
                "top_logprobs": {"top_logprobs": 2}, "input[0].content[0].type": {"input": image},
                "max_output_tokens": {"max_output_tokens": 5000}, "input": {"input": "dog " * 2000}}.items():
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as caught:
                respond(**options)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.NotFoundError):
            respond(model="nobody")
        with self.assertRaises(openai.NotFoundError):
            setting.client().responses.retrieve("resp_1")
