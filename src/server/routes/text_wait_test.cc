// Requests for an adapter whose tokenizer files are not read yet.
#include <gtest/gtest.h>

#include <thread>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

class TextWaitTest : public RoutesTest {
 protected:
  TextWaitTest() { models.putAdapter(late); }

  std::shared_ptr<FakeExchange> ask(const std::string& model, const std::string& path = "/v1/completions") {
    const std::string prompt =
        path == "/v1/completions" ? R"("prompt":"x")" : R"("messages":[{"role":"user","content":"x"}])";
    return send("POST", path, "{" + prompt + R"(,"max_tokens":2,"model":")" + model + "\"}");
  }
  // Until the catalog's awaited adapters are these.
  void untilAwaited(const std::vector<std::string>& adapters) {
    while (models.awaited() != adapters) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void addText() {
    late.text = models.base().text;
    models.putAdapter(late);
  }

  ServedModel late{.name = "late", .adapter_id = 9, .fingerprint = "fp"};
};

TEST_F(TextWaitTest, ARequestWaitsAndIsAnswered) {
  const auto completion = ask("late"), chat = ask("late", "/v1/chat/completions");
  const auto tokens = ask("late", "/tokenize"), message = ask("late", "/v1/messages");
  const auto composed = send("POST", "/v1/completions",
                             R"({"model":"base","prompt":"x","max_tokens":2,"adapters":[{"name":"late","weight":1}]})");
  untilAwaited({"late"});
  EXPECT_EQ(ask("base")->wait().status, 200) << "nobody else waits";
  addText();
  EXPECT_EQ(completion->wait().status, 200);
  EXPECT_EQ(chat->wait().status, 200);
  EXPECT_EQ(tokens->wait().status, 200);
  EXPECT_EQ(message->wait().status, 200);
  EXPECT_EQ(composed->wait().status, 200);
}

TEST_F(TextWaitTest, AnAdapterThatIsRemovedIsNotFound) {
  const auto request = ask("late");
  untilAwaited({"late"});
  models.removeAdapter("late");
  EXPECT_EQ(request->wait().status, 404);
}

TEST_F(TextWaitTest, AWaitHasALimit) {
  const auto request = ask("late");
  untilAwaited({"late"});
  models.endWaitsBefore(TextWaits::Clock::now() + std::chrono::seconds(1));
  const HttpResponse response = request->wait();
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("tokenizer of the adapter `late` is still being read"), std::string::npos);
  EXPECT_TRUE(models.awaited().empty());
}

TEST_F(TextWaitTest, TheRequestTimeoutCountsTheWait) {
  constexpr std::chrono::milliseconds kTimeout{60'000}, kWait{20};
  context->request_timeout = kTimeout;
  const auto request = ask("late");
  untilAwaited({"late"});
  std::this_thread::sleep_for(kWait);
  addText();
  EXPECT_EQ(request->wait().status, 200);
  EXPECT_LE(engine.seen.back().getAllottedTimeMs(), kTimeout - kWait);
}

TEST_F(TextWaitTest, AClientThatLeavesGivesItsMemoryBack) {
  const auto request = ask("late");
  untilAwaited({"late"});
  request->disconnect();
  untilAwaited({});
  endRequests();
}

TEST_F(TextWaitTest, AServerThatStopsAnswers) {
  const auto request = ask("late");
  untilAwaited({"late"});
  intake.cancelAll();
  models.endWaits();
  EXPECT_EQ(request->wait().status, 503);
}

}  // namespace
}  // namespace chorus::server
