#include "server/openai/text_answer_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/testing/fakes.h"
#include "server/testing/named_events.h"

namespace chorus::server {
namespace {

class PlainWriter : public TextAnswerWriter {
 public:
  PlainWriter(AnswerSetup setup, bool stream_keeps_text)
      : TextAnswerWriter(std::move(setup), errorFormFor("/v1/messages", "req-t"), stream_keeps_text) {}

 protected:
  size_t keepMore(const GenerationDelta& delta) override { return delta.log_probs.size() * 16; }
  std::string wholeAnswer(Answer answer) override { return OrderedJson{{"text", answer.text}}.dump(); }
  void streamBegins() override { sendJson("begin", {{"model", model().name}}); }
  void streamStarts(const GenerationUsage& usage) override { sendJson("start", {{"prompt", usage.prompt_tokens}}); }
  bool streamText(const std::string& text) override { return sendJson("text", {{"text", text}}); }
  void streamEnds(const Answer& answer) override {
    sendJson("end",
             {{"text", answer.text}, {"reason", answer.finish_reason}, {"tokens", answer.usage.completion_tokens}});
  }
  void streamFails(const ApiError& error) override { sendJson("fail", {{"status", error.status()}}); }

 private:
  bool sendJson(const char* event, const OrderedJson& json) { return send(event, json.dump()); }
};

class TextAnswerWriterTest : public ::testing::Test {
 protected:
  std::shared_ptr<PlainWriter> writer(bool stream, bool keeps_text) {
    GenerationOptions options;
    options.stream = stream;
    auto model = std::make_shared<ServedModel>();
    model->name = "base";
    return std::make_shared<PlainWriter>(AnswerSetup{exchange, model, options, 1, ClientCharge(client)}, keeps_text);
  }
  static GenerationDelta text(const std::string& text) {
    GenerationDelta delta;
    delta.text = text;
    delta.usage.prompt_tokens = 3;
    return delta;
  }
  std::vector<std::pair<std::string, Json>> events() { return namedEvents(exchange->wait().body); }

  std::shared_ptr<FakeExchange> exchange = std::make_shared<FakeExchange>();
  std::shared_ptr<ClientRegistry> clients =
      std::make_shared<ClientRegistry>(ClientMemoryLimits{.server = 1024, .client = 64});
  std::shared_ptr<Client> client = clients->find("192.0.2.1");
};

TEST_F(TextAnswerWriterTest, AStreamStartsOnceAndEnds) {
  const auto stream = writer(true, true);
  EXPECT_EQ(stream->onDelta(text("")), Written::kAll);
  EXPECT_EQ(stream->onDelta(text("a")), Written::kAll);
  GenerationDelta last = text("b");
  last.finish_reason = "stop";
  EXPECT_EQ(stream->onDelta(std::move(last)), Written::kAll);
  EXPECT_EQ(client->memory().small.used() + client->memory().large.used(), 2u);
  stream->onDone({.prompt_tokens = 3, .completion_tokens = 2});
  EXPECT_EQ(events(),
            (std::vector<std::pair<std::string, Json>>{{"begin", {{"model", "base"}}},
                                                       {"start", {{"prompt", 3}}},
                                                       {"text", {{"text", "a"}}},
                                                       {"text", {{"text", "b"}}},
                                                       {"end", {{"text", "ab"}, {"reason", "stop"}, {"tokens", 2}}}}));
}

TEST_F(TextAnswerWriterTest, TextThatIsKeptIsCharged) {
  const std::string large(200, 'x');
  const auto stream = writer(true, true);
  EXPECT_EQ(stream->onDelta(text("a")), Written::kAll);
  EXPECT_EQ(stream->onDelta(text(large)), Written::kCancelled);
  EXPECT_EQ(events().back(), (std::pair<std::string, Json>{"fail", {{"status", 429}}}));

  exchange = std::make_shared<FakeExchange>();
  EXPECT_EQ(writer(true, false)->onDelta(text(large)), Written::kAll) << "a stream that keeps no text has no charge";

  exchange = std::make_shared<FakeExchange>();
  EXPECT_EQ(writer(false, false)->onDelta(text(large)), Written::kCancelled);
  const HttpResponse refused = exchange->wait();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "rate_limit_error") << "in the form of the route";
}

TEST_F(TextAnswerWriterTest, AWholeAnswer) {
  const auto whole = writer(false, false);
  EXPECT_EQ(whole->onDelta(text("a")), Written::kAll);
  EXPECT_EQ(whole->onDelta(text("b")), Written::kAll);
  whole->onDone({});
  EXPECT_EQ(exchange->wait().body, R"({"text":"ab"})");
}

}  // namespace
}  // namespace chorus::server
