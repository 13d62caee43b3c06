// Base of the writers whose answer is one text and whose streams are named events: OpenAI's responses and Anthropic's
// messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/openai/answer_writer.h"

namespace chorus::server {

class TextAnswerWriter : public AnswerWriter {
 public:
  Written onDelta(GenerationDelta delta) final;
  Written onDone(const GenerationUsage& usage) final;

 protected:
  struct Answer {
    std::string text;  // empty in a stream that keeps no text
    std::string finish_reason;
    OrderedJson stop_reason;
    GenerationUsage usage;
  };

  // form: of errors. stream_keeps_text: a stream's last events repeat the text.
  TextAnswerWriter(AnswerSetup setup, ErrorForm form, bool stream_keeps_text);

  // Sends one event of a stream. payload: JSON. Returns false if the client has disconnected. Holds two copies of the
  // payload at a time.
  bool send(std::string_view event, std::string payload);

  // Called for each delta before its text is sent. Returns how many bytes of it the writer keeps until the end of the
  // answer, in addition to the text.
  virtual size_t keepMore(const GenerationDelta&) { return 0; }
  // The JSON of a whole answer.
  virtual std::string wholeAnswer(Answer answer) = 0;
  // The events of a stream: after its head, which is sent with the first delta; before this delta; of each text, which
  // is not empty; at the end, and at an error. streamStarts is called before streamEnds even if there was no delta.
  void streamBegins() override = 0;
  virtual void streamStarts(const GenerationUsage& usage) = 0;
  virtual bool streamText(const std::string& text) = 0;
  // Its events may hold up to four copies of the text and two of what keepMore() kept.
  virtual void streamEnds(const Answer& answer) = 0;
  void streamFails(const ApiError& error) override = 0;

 private:
  bool keeps_text_;
  bool started_ = false;
  size_t kept_more_ = 0;  // bytes: sum of the results of keepMore()
  Answer answer_;
};

}  // namespace chorus::server
