// Charges to a client for what its requests keep until they are answered, and turns between the texts of clients.
#include <gtest/gtest.h>

#include <atomic>

#include "server/access/fair_share.h"
#include "server/testing/held_intake.h"
#include "server/testing/routes_fixture.h"
#include "server/testing/turn_order.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

// A codec in which the token 7 has a long text, and which counts the tokens that become text.
class CountingCodec : public FakeCodec {
 public:
  static constexpr size_t kLongText = size_t{64} << 10;
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens) const override {
    decoded += tokens.size();
    return FakeCodec::decode(tokens, skip_special_tokens);
  }
  std::unique_ptr<TextStream> newStream(const TextStreamOptions&) const override {
    return std::make_unique<Stream>(*this);
  }
  mutable std::atomic<size_t> decoded = 0;

 private:
  class Stream : public TextStream {
   public:
    explicit Stream(const CountingCodec& codec) : codec_(codec) {}
    Piece push(int32_t token) override {
      ++codec_.decoded;
      return {std::string(token == 7 ? kLongText : 1, 'x'), std::nullopt};
    }
    Piece finish() override { return {}; }

   private:
    const CountingCodec& codec_;
  };
};

class KeptMemoryTest : public RoutesTest {
 protected:
  KeptMemoryTest() {
    models.putAdapter({.name = "long", .adapter_id = 0, .fingerprint = "fp", .created = 9, .text = counting});
  }
  HttpResponse echo(size_t tokens, int32_t token) {
    const Json body{
        {"model", "long"}, {"echo", true}, {"max_tokens", 1}, {"prompt", std::vector<int32_t>(tokens, token)}};
    return answer("POST", "/v1/completions", body.dump());
  }
  std::shared_ptr<CountingCodec> counting = std::make_shared<CountingCodec>();
};

TEST_F(KeptMemoryTest, APromptOfTooManyIdsIsRefusedBeforeItsEchoIsMade) {
  const HttpResponse response = echo(201, 1);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Json::parse(response.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(counting->decoded, 0U);
}

TEST_F(KeptMemoryTest, AnEchoIsChargedWhileItIsMade) {
  const HttpResponse response = echo(100, 7);
  EXPECT_EQ(response.status, 429) << response.body.substr(0, 200);
  EXPECT_LT(counting->decoded, 50U);
  endRequests();
  const HttpResponse short_echo = echo(3, 1);
  EXPECT_EQ(short_echo.status, 200);
  EXPECT_EQ(Json::parse(short_echo.body)["choices"][0]["text"], "xxxx");
}

// The text is kept, and its JSON values and their text are made of it.
TEST_F(KeptMemoryTest, TheCopiesOfAWholeAnswerAreCharged) {
  for (const auto& [free, status] : {std::pair(size_t{1} << 20, 429), {size_t{2} << 20, 200}}) {
    endRequests();
    ClientCharge held(client);
    ASSERT_EQ(held.resize(client->memory().large.limit() - free), MemoryAnswer::kGranted);
    EXPECT_EQ(echo(8, 7).status, status) << free;
  }
}

TEST_F(KeptMemoryTest, TheCopiesOfAStreamsLastEventsAreCharged) {
  const std::string request = R"({"model":"base","stream":true,"input":"hi","max_output_tokens":150,"top_logprobs":20,)"
                              R"("include":["message.output_text.logprobs"]})";
  const std::string whole = answer("POST", "/v1/responses", request).body;
  ASSERT_NE(whole.find("response.incomplete"), std::string::npos);
  // Each of the four last events has the whole list.
  const size_t list = (whole.size() - whole.find("event: response.output_text.done")) / 4;
  ASSERT_GT(list, ClientCharge::kSmall);
  for (const auto& [free, end] : {std::pair(2 * list, "response.failed"), {4 * list, "response.incomplete"}}) {
    endRequests();
    ClientCharge held(client);
    ASSERT_EQ(held.resize(client->memory().large.limit() - free), MemoryAnswer::kGranted);
    EXPECT_NE(answer("POST", "/v1/responses", request).body.find(end), std::string::npos) << free;
  }
}

TEST_F(KeptMemoryTest, WaitingSequencesAreCharged) {
  // The charge while the sequences of a request are added to the queue.
  const auto charge_of = [&](const std::string& fields) {
    endRequests();
    size_t charged = 0;
    engine.on_enqueue = [&] { charged = clients->used(); };
    completion(fields);
    return charged;
  };
  const size_t one = charge_of(R"("prompt":"p","max_tokens":2)");
  const std::string prompt = R"("prompt":")" + std::string(100, 'p') + R"(","max_tokens":2,"temperature":1)";
  EXPECT_GE(charge_of(prompt + R"(,"n":8)"), charge_of(prompt) + 7 * (1024 + 100 * sizeof(int32_t)));
  EXPECT_GE(charge_of(R"("prompt":"p","max_tokens":2,"logit_bias":{"65":1,"66":1})"), one + 2 * 8);
  // Five bytes for each byte of a stop string, and what each sequence may hold back.
  const std::string stop = R"("prompt":"p","max_tokens":2,"temperature":1,"stop":")" + std::string(1000, 's') + '"';
  EXPECT_GE(charge_of(stop), one + 6 * 1000);
  EXPECT_GE(charge_of(stop + R"(,"n":8)"), one + 7 * 1024 + (5 + 8) * 1000);
  // The word itself, and 20 bytes for each of its tokens.
  EXPECT_GE(charge_of(R"("prompt":"p","max_tokens":2,"bad_words":[")" + std::string(1000, 'b') + R"("])"),
            one + (20 + sizeof(int32_t)) * 1000);
}

// Each of its answers is one arrival of many tokens, whose text takes long.
class SlowTextTest : public RoutesTest {
 protected:
  class SlowCodec : public FakeCodec {
   public:
    explicit SlowCodec(TurnOrder& order) : order_(order) {}
    std::unique_ptr<TextStream> newStream(const TextStreamOptions&) const override {
      return std::make_unique<Stream>(*this);
    }

   private:
    class Stream : public TextStream {
     public:
      explicit Stream(const SlowCodec& codec) : codec_(codec) {}
      Piece push(int32_t token) override {
        codec_.order_.piece(static_cast<char>(token));
        return {std::string(1, static_cast<char>(token)), std::nullopt};
      }
      Piece finish() override { return {}; }

     private:
      const SlowCodec& codec_;
    };
    TurnOrder& order_;
  };

  const std::string names{"ABC"};  // one more than there are delivery threads
  TurnOrder order{names};
};

TEST_F(SlowTextTest, GenerationsTakeTurnsWithinAnArrival) {
  models.putAdapter(
      {.name = "slow", .adapter_id = 0, .fingerprint = "fp", .created = 9, .text = std::make_shared<SlowCodec>(order)});
  std::atomic<int> enqueued{0};
  engine.on_enqueue = [&] { ++enqueued; };
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  constexpr int kTokens = 100;
  for (const char name : names) {
    const Json body{
        {"model", "slow"}, {"prompt", std::vector<int32_t>(1, name)}, {"max_tokens", kTokens}, {"temperature", 0}};
    exchanges.push_back(send("POST", "/v1/completions", body.dump()));
  }
  // Each answer then waits for a delivery thread, or has one.
  EXPECT_TRUE(eventually([&] { return enqueued == std::ssize(names) && engine.running() == 0; }));
  HeldIntake(intake).release();
  order.open();
  for (size_t i = 0; i < names.size(); ++i) {
    const Json whole = Json::parse(exchanges[i]->wait().body);
    EXPECT_EQ(whole["choices"][0]["text"], std::string(kTokens, names[i]));
    EXPECT_EQ(whole["usage"]["completion_tokens"], kTokens);
  }
  EXPECT_TRUE(order.takeTurns()) << "the last to begin waited for the end of another";
}

TEST_F(RoutesTest, ListsOfModelsAreMadeInAnIntakeOfTheirOwn) {
  HeldIntake requests(intake), lists(list_intake);
  std::vector<std::shared_ptr<FakeExchange>> sent;
  for (const char* path : {"/v1/models", "/v1/metadata", "/v1/manifest", "/v1/batch"}) {
    sent.push_back(send("GET", path));
    EXPECT_FALSE(sent.back()->done()) << path;
  }
  for (const char* path : {"/v1/health/ready", "/metrics"}) {
    EXPECT_EQ(answer("GET", path).status, 200) << path << " is not behind an intake";
  }
  lists.release();
  for (const auto& list : sent) EXPECT_EQ(list->wait().status, 200) << "while requests wait for the other intake";
  requests.release();
}

TEST_F(RoutesTest, ListsOfModelsAreChargedWhileTheyAreMade) {
  constexpr size_t kModels = 3000;
  for (size_t i = 0; i < kModels; ++i) {
    models.putAdapter({.name = "adapter " + std::to_string(i), .adapter_id = i + 2, .fingerprint = "f", .text = codec});
  }
  for (const char* path : {"/v1/models", "/v1/metadata", "/v1/manifest"}) {
    EXPECT_NE(answer("GET", path).body.find("adapter 2999"), std::string::npos) << path;
    auto charges = fillShare();
    EXPECT_EQ(answer("GET", path).status, 429) << path;
  }
}

TEST_F(RoutesTest, ABodyIsChargedBeforeItGrows) {
  ChargedBody body(client);
  body.add("begin ");
  auto charges = fillShare();
  EXPECT_THROW(body.add(std::string(1000, 'x')), ApiError);
  charges.clear();
  body.add(std::string(1000, 'x'));
  EXPECT_GE(clients->used(), 1006U);
  const HttpResponse response = body.response();
  EXPECT_EQ(response.body, "begin " + std::string(1000, 'x'));
  EXPECT_GE(response.memory.bytes(), response.body.size());
}

TEST_F(RoutesTest, CompositionsOfAClientHaveOneFairShare) {
  const auto group = [&](const std::shared_ptr<Client>& of, std::vector<executor::WeightedLora> terms) {
    const ServedModel model{
        .name = "base", .composition = std::move(terms), .composed_of = {"a", "b"}, .fingerprint = ""};
    HttpRequest request;
    request.client = of;
    return fairShareOf(FairBy::kAdapters, request, model)->group;
  };
  const auto other = clients->find("192.0.2.2");
  EXPECT_EQ(group(client, {{1, 1.0F}, {2, 1.0F}}), group(client, {{2, 1.0F}, {1, 1.0F}}));
  EXPECT_EQ(group(client, {{1, 1.0F}, {2, 1.0F}}), group(client, {{3, 0.5F}}));
  EXPECT_NE(group(client, {{1, 1.0F}}), group(other, {{1, 1.0F}}));
}

}  // namespace
}  // namespace chorus::server
