#include "server/openai/generation_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "server/testing/held_intake.h"
#include "server/testing/routes_fixture.h"
#include "server/testing/turn_order.h"

namespace chorus::server {
namespace {

constexpr size_t kChoices = 4;

// 3 bytes for each character, so that pieces of 64 KiB would end within one.
std::string echoText(size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += i % 100 == 99 ? "\"\n?" : "\u20ac";
  return text;
}

class EchoWriter : public GenerationWriter {
 public:
  EchoWriter(const std::shared_ptr<HttpExchange>& exchange, bool stream, std::string echo)
      : GenerationWriter({exchange, std::make_shared<ServedModel>(ServedModel{.name = "m", .fingerprint = "fp"}),
                          fields(stream), kChoices, ClientCharge()},
                         {"id-", "whole", "chunk"}),
        echo_(std::move(echo)) {}

 protected:
  std::string_view echoOf(int32_t) const override { return echo_; }
  bool hasFirstChunks() const override { return true; }
  OrderedJson echoChoice(int32_t index, std::string_view text) override {
    return {{"index", index}, {"text", text}, {"logprobs", nullptr}};
  }
  OrderedJson deltaChoice(const GenerationDelta& delta) override { return wholeChoice(delta); }
  void appendLogProbs(const GenerationDelta&, ArraysText&) override {}
  OrderedJson wholeChoice(const GenerationDelta& delta) override {
    return {{"index", delta.choice}, {"text", delta.text}, {"logprobs", nullptr}, {"end", true}};
  }

 private:
  static AnswerFields fields(bool stream) {
    AnswerFields fields{};
    fields.stream = stream;
    fields.choices = fields.generated = static_cast<int32_t>(kChoices);
    return fields;
  }
  std::string echo_;
};

// Passes one delta for each choice, and the end. Returns the number of calls that have written.
int writeAll(GenerationWriter& writer) {
  int calls = 0;
  const auto finish = [&](Written written) {
    for (++calls; written == Written::kPart; ++calls) written = writer.writeMore();
    EXPECT_EQ(written, Written::kAll);
  };
  for (size_t i = 0; i < kChoices; ++i) {
    GenerationDelta delta;
    delta.choice = static_cast<int32_t>(i);
    delta.text = "!";
    delta.finish_reason = "length";
    finish(writer.onDelta(std::move(delta)));
  }
  finish(writer.onDone({}));
  return calls;
}

constexpr size_t kCharacters = 100'000;
constexpr int kLeastCalls = 16;  // of 64 KiB, for 4 echoes of 300 KB

TEST(GenerationWriterTest, AWholeAnswerIsWrittenInPieces) {
  const std::string echo = echoText(kCharacters);
  const auto exchange = std::make_shared<FakeExchange>();
  EchoWriter writer(exchange, false, echo);
  EXPECT_GE(writeAll(writer), kLeastCalls);
  const Json answer = Json::parse(exchange->wait().body);
  ASSERT_EQ(answer["choices"].size(), kChoices);
  for (size_t i = 0; i < kChoices; ++i) {
    const Json& choice = answer["choices"][i];
    EXPECT_TRUE(choice["text"] == echo + "!") << i;
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["end"], true);
  }
  EXPECT_EQ(answer["object"], "whole");
  EXPECT_TRUE(answer.contains("usage"));
}

TEST(GenerationWriterTest, EchoesAreStreamedInPieces) {
  const std::string echo = echoText(kCharacters);
  const auto exchange = std::make_shared<FakeExchange>();
  EchoWriter writer(exchange, true, echo);
  EXPECT_GE(writeAll(writer), kLeastCalls);
  std::vector<std::string> texts(kChoices);
  const std::string body = exchange->wait().body;
  for (size_t at = 0; body.compare(at, 7, "data: {") == 0;) {
    const size_t end = body.find("\n\n", at);
    const Json choice = Json::parse(body.substr(at + 6, end - at - 6))["choices"][0];
    const auto text = choice["text"].get<std::string>();
    EXPECT_LE(text.size(), GenerationWriter::kPieceBytes);
    texts[choice["index"].get<size_t>()] += text;
    at = end + 2;
  }
  for (const std::string& text : texts) EXPECT_TRUE(text == echo + "!");
}

TEST(GenerationWriterTest, NothingIsWrittenForAClientThatIsGone) {
  const auto exchange = std::make_shared<FakeExchange>();
  EchoWriter writer(exchange, true, echoText(kCharacters));
  GenerationDelta delta;
  EXPECT_EQ(writer.onDelta(std::move(delta)), Written::kPart);
  exchange->disconnect();
  EXPECT_EQ(writer.writeMore(), Written::kCancelled);
}

// Records whose echoes are written when.
class OrderedExchange : public FakeExchange {
 public:
  OrderedExchange(char name, TurnOrder& order) : name_(name), order_(order) {}
  bool write(std::string_view bytes) override {
    constexpr size_t kLarge = 1024;
    if (bytes.size() > kLarge) order_.piece(name_);
    return FakeExchange::write(bytes);
  }

 private:
  char name_;
  TurnOrder& order_;
};

// A prompt is one token, however long its text is.
class ShortCodec : public FakeCodec {
 public:
  std::vector<int32_t> encode(std::string_view, bool, WorkMeter&, const EncodeLimits&) const override { return {'x'}; }
};

TEST_F(RoutesTest, GenerationsTakeTurnsWithinTheirEchoes) {
  models.putAdapter(
      {.name = "short", .adapter_id = 0, .fingerprint = "fp", .created = 9, .text = std::make_shared<ShortCodec>()});
  const std::string echo(100'000, 'e');
  const std::string names = "ABC";  // one more than there are delivery threads
  TurnOrder order(names);
  std::atomic<int> enqueued{0};
  engine.on_enqueue = [&] { ++enqueued; };
  for (const char* log_probs : {"", R"("logprobs":1,)"}) {
    enqueued = 0;
    std::vector<std::shared_ptr<FakeExchange>> exchanges;
    for (const char name : names) {
      exchanges.push_back(std::make_shared<OrderedExchange>(name, order));
      routes.handle({.method = "POST",
                     .path = "/v1/completions",
                     .headers = {{"content-type", "application/json"}},
                     .body = R"({"model":"short","stream":true,"echo":true,"n":16,"max_tokens":2,)" +
                             std::string(log_probs) + R"("prompt":")" + echo + "\"}"},
                    exchanges.back());
    }
    // Each answer then waits for a delivery thread, or has one.
    EXPECT_TRUE(eventually([&] { return enqueued == std::ssize(names) && engine.running() == 0; }));
    HeldIntake(intake).release();
    order.open();
    for (const auto& exchange : exchanges) {
      std::vector<std::string> texts(16);
      for (const Json& event : events(exchange->wait().body)) {
        const Json& choice = event["choices"][0];
        texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
      }
      for (const std::string& text : texts) EXPECT_TRUE(text == echo + "xx");
    }
    EXPECT_TRUE(order.takeTurns()) << "the last to begin waited for the end of another " << log_probs;
  }
}

}  // namespace
}  // namespace chorus::server
