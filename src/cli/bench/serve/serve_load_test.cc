#include "cli/bench/serve/serve_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/testing/eventually.h"
#include "cli/bench/serve/retry_after.h"
#include "server/http/http.h"

namespace chorus {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

using Exchange = std::shared_ptr<server::HttpExchange>;

void answerWith(const Exchange& exchange, const std::string& text) {
  exchange->beginStream(200, "text/event-stream");
  exchange->write("data: " + Json{{"choices", {{{"index", 0}, {"text", text}}}}}.dump() + "\n\ndata: [DONE]\n\n");
  exchange->endStream();
}

void refuse(const Exchange& exchange, int status, const std::string& wait_ms) {
  exchange->respond(
      {.status = status, .body = R"({"error":{"message":"full"}})", .headers = {{"retry-after-ms", wait_ms}}});
}

// Answers each request, after `work`, on a thread of its own.
class LoadedServer {
 public:
  using Handler = std::function<void(const Json& body, const Exchange& exchange)>;
  explicit LoadedServer(
      Handler handler, std::function<void()> work = [] {})
      : http_({.port = 0}, [this, handler = std::move(handler), work](server::HttpRequest request, Exchange exchange) {
          const std::lock_guard lock(mutex_);
          most_ = std::max(most_, ++running_);
          threads_.emplace_back([this, handler, work, body = parseJson(request.body, "body"), exchange] {
            work();
            {
              const std::lock_guard done(mutex_);
              --running_;
            }
            handler(body, exchange);
          });
        }) {
    http_.start();
  }
  ~LoadedServer() {
    http_.stop();  // requests that the client has given up may still arrive
    for (std::thread& thread : threads_) thread.join();
  }

  LoadResult run(ServeLoad load, const StopEvent& stop = [](milliseconds) { return false; }) {
    HttpClient client({.host = "127.0.0.1", .port = http_.port()}, kPatience);
    load.plan.models = load.models.size();
    return runServeLoad(client, load, stop);
  }
  int most() const { return most_; }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  int running_ = 0, most_ = 0;
  server::HttpServer http_;
};

ServeLoad closedLoop(int streams, int64_t requests) {
  return {.models = {"a", "b"}, .plan = {.requests = requests, .pool = 2}, .streams = streams};
}

TEST(ServeLoadTest, AClosedLoopRunsItsStreamsAtATime) {
  constexpr size_t kStreams = 6;
  std::atomic<size_t> begun{0};
  std::latch all(kStreams);
  LoadedServer server([](const Json&, const Exchange& exchange) { answerWith(exchange, "x"); },
                      [&] {
                        if (begun++ < kStreams) all.arrive_and_wait();
                        std::this_thread::sleep_for(milliseconds(2));
                      });
  const LoadResult result = server.run(closedLoop(kStreams, 40));
  EXPECT_EQ(server.most(), static_cast<int>(kStreams));
  ASSERT_EQ(result.records.size(), 40u);
  std::vector<double> ends;
  for (const RequestRecord& record : result.records) {
    EXPECT_TRUE(record.complete()) << record.error_text;
    EXPECT_LE(record.planned, record.sent);
    ends.push_back(record.end);
  }
  std::ranges::sort(ends);
  for (size_t i = kStreams; i < ends.size(); ++i) {
    EXPECT_GE(result.records[i].planned, ends[i - kStreams])
        << "it is due when the one before it in its stream has ended";
  }
}

TEST(ServeLoadTest, AClosedLoopEndsByTime) {
  LoadedServer server([](const Json&, const Exchange& exchange) { answerWith(exchange, "x"); },
                      [] { std::this_thread::sleep_for(milliseconds(20)); });
  ServeLoad load = closedLoop(2, 0);
  size_t requests = 0;
  // On a busy machine only a longer load has several requests in each stream.
  for (load.plan.duration = 0.3; requests <= 4 && load.plan.duration < 100; load.plan.duration *= 4) {
    const auto begin = LoadClock::now();
    const LoadResult result = server.run(load);
    EXPECT_GE(LoadClock::now() - begin, std::chrono::duration<double>(load.plan.duration));
    for (const RequestRecord& record : result.records) EXPECT_LT(record.planned, load.plan.duration);
    requests = result.records.size();
  }
  EXPECT_GT(requests, 4u);
}

TEST(ServeLoadTest, AServerThatFailsAtOnceIsNotAskedWithoutEnd) {
  LoadedServer server([](const Json&, const Exchange& exchange) { refuse(exchange, 500, "0"); });
  ServeLoad load = closedLoop(3, 0);
  load.plan.duration = 0.5;
  EXPECT_LT(server.run(load).records.size(), 20u);
}

// Refuses the first `refusals` tries of each prompt.
class Refusing {
 public:
  Refusing(int refusals, int status) : refusals_(refusals), status_(status) {}
  void operator()(const Json& body, const Exchange& exchange) {
    const std::lock_guard lock(*mutex_);
    if ((*tries_)[body["prompt"].dump()]++ < refusals_) return refuse(exchange, status_, "40");
    answerWith(exchange, "x");
  }

 private:
  int refusals_, status_;
  std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  std::shared_ptr<std::map<std::string, int>> tries_ = std::make_shared<std::map<std::string, int>>();
};

ServeLoad newPrompts(int64_t requests, int64_t retries) {
  ServeLoad load = closedLoop(2, requests);
  load.plan.pool = 0;
  load.plan.prompt = {8, 8};
  load.retries = retries;
  return load;
}

TEST(ServeLoadTest, RefusedRequestsRecoverAfterTheNamedTime) {
  for (const int status : {429, 503}) {
    LoadedServer server(Refusing(2, status));
    const LoadResult result = server.run(newPrompts(5, 2));
    ASSERT_EQ(result.records.size(), 5u);
    for (const RequestRecord& record : result.records) {
      EXPECT_TRUE(record.recovered()) << record.error_text;
      EXPECT_EQ(record.retries, 2);
      EXPECT_EQ(record.refused_429, status == 429 ? 2 : 0);
      EXPECT_GE(record.latency(), 2 * 0.040);
      EXPECT_GE(record.tried - record.sent, 2 * 0.040);
      EXPECT_GE(record.timeToFirst(), record.timeToFirstOfLastTry() + 2 * 0.040 - 1e-9);
    }
  }
}

TEST(ServeLoadTest, TriesAreBounded) {
  LoadedServer server(Refusing(2, 429));
  for (const RequestRecord& record : server.run(newPrompts(3, 1)).records) {
    EXPECT_EQ(record.error, "status 429");
    EXPECT_EQ(record.retries, 1);
    EXPECT_EQ(record.refused_429, 2);
    EXPECT_FALSE(record.recovered());
  }
}

TEST(ServeLoadTest, OtherFailuresAreNotTriedAgain) {
  LoadedServer server(Refusing(1, 500));
  for (const RequestRecord& record : server.run(newPrompts(3, 5)).records) {
    EXPECT_EQ(record.error, "status 500");
    EXPECT_EQ(record.retries, 0);
  }
}

TEST(ServeLoadTest, AStopEndsWaitsForTheNextTry) {
  std::atomic<int> refused{0};
  LoadedServer server([&](const Json&, const Exchange& exchange) {
    refuse(exchange, 429, "60000");
    ++refused;
  });
  const auto begin = LoadClock::now();
  std::optional<LoadClock::time_point> both_wait;
  const LoadResult result = server.run(newPrompts(2, 5), [&](milliseconds) {
    if (refused == 2 && !both_wait) both_wait = LoadClock::now();
    return both_wait && LoadClock::now() - *both_wait > milliseconds(300);
  });
  EXPECT_TRUE(result.stopped);
  ASSERT_EQ(result.records.size(), 2u);
  for (const RequestRecord& record : result.records) EXPECT_TRUE(record.unfinished());
  EXPECT_LT(LoadClock::now() - begin, kLongestRetryWait);
}

std::string correctAnswer(const Json& body) { return body["model"].get<std::string>() + body["prompt"].dump(); }

size_t countOf(const LoadResult& result, Comparison comparison) {
  return static_cast<size_t>(
      std::count_if(result.records.begin(), result.records.end(),
                    [&](const RequestRecord& record) { return record.comparison == comparison; }));
}

TEST(ServeLoadTest, EveryPairIsAskedAloneBeforeTheLoad) {
  std::mutex mutex;
  std::set<std::string> pairs, salts;
  int alone = 0;
  LoadedServer server([&](const Json& body, const Exchange& exchange) {
    const std::lock_guard lock(mutex);
    if (body.contains("cache_salt")) {
      ++alone;
      pairs.insert(correctAnswer(body));
      salts.insert(body["cache_salt"].get<std::string>());
    }
    answerWith(exchange, correctAnswer(body));
  });
  ServeLoad load = closedLoop(4, 30);
  load.verify = true;
  const LoadResult result = server.run(load);
  EXPECT_EQ(alone, 4) << "two models, two prompts";
  EXPECT_EQ(pairs.size(), 4u);
  EXPECT_EQ(salts.size(), 4u);
  EXPECT_EQ(countOf(result, Comparison::kEqual), 30u);
  EXPECT_EQ(result.first_difference, "");
}

TEST(ServeLoadTest, AnAnswerThatOthersChangeIsDifferent) {
  std::atomic<int> asked{0};
  LoadedServer server([&](const Json& body, const Exchange& exchange) {
    // The fifth request of the load gets another answer; four requests were alone before.
    answerWith(exchange, correctAnswer(body) + (++asked == 4 + 5 ? " and more" : ""));
  });
  ServeLoad load = closedLoop(4, 30);
  load.verify = true;
  const LoadResult result = server.run(load);
  EXPECT_EQ(countOf(result, Comparison::kDifferent), 1u);
  EXPECT_EQ(countOf(result, Comparison::kEqual), 29u);
  EXPECT_THAT(result.first_difference,
              testing::AllOf(HasSubstr(", prompt "), HasSubstr(" at byte "), HasSubstr(" and more")));
}

TEST(ServeLoadTest, AServerWithoutSaltsIsVerifiedToo) {
  std::atomic<int> refused{0};
  LoadedServer server([&](const Json& body, const Exchange& exchange) {
    if (!body.contains("cache_salt")) return answerWith(exchange, correctAnswer(body));
    ++refused;
    refuse(exchange, 400, "0");
  });
  ServeLoad load = closedLoop(4, 10);
  load.verify = true;
  EXPECT_EQ(countOf(server.run(load), Comparison::kEqual), 10u);
  EXPECT_EQ(refused, 1);
}

TEST(ServeLoadTest, WithoutASoloAnswerThereIsNoLoad) {
  std::atomic<int> asked{0};
  LoadedServer server([&](const Json& body, const Exchange& exchange) {
    ++asked;
    if (body["model"] == "b") return refuse(exchange, 404, "0");
    answerWith(exchange, "x");
  });
  ServeLoad load = closedLoop(4, 10);
  load.verify = true;
  try {
    server.run(load);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--verify: b did not answer prompt 0 alone: status 404: full"));
  }
  EXPECT_EQ(asked, 3);
}

TEST(ServeLoadTest, FurtherFieldsGoIntoEveryBody) {
  std::atomic<int> with_field{0};
  LoadedServer server([&](const Json& body, const Exchange& exchange) {
    if (body.value("logprobs", 0) == 3 && body["max_tokens"] == 5) ++with_field;
    answerWith(exchange, correctAnswer(body));
  });
  ServeLoad load = closedLoop(2, 6);
  load.verify = true;
  load.extra_body = {{"logprobs", 3}, {"max_tokens", 5}};
  server.run(load);
  EXPECT_EQ(with_field, 4 + 6);
}

}  // namespace
}  // namespace chorus
