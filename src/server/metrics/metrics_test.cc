// Tests what the metrics count after known requests to a fake engine.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "server/metrics/access_log.h"
#include "server/metrics/live_state.h"
#include "server/metrics/server_metrics.h"
#include "server/metrics/trace_context.h"
#include "server/testing/routes_fixture.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

// Samples by their text before the value, such as `name{label="x"}`, and the names of the families.
struct Scrape {
  std::map<std::string, double> samples;
  std::set<std::string> families;

  double operator[](const std::string& sample) const {
    const auto found = samples.find(sample);
    return found == samples.end() ? -1 : found->second;
  }
};

Scrape parse(const std::string& text) {
  Scrape scrape;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# TYPE ")) {
      const std::string name = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(scrape.families.insert(name).second) << name << " comes twice";
    }
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    size_t used = 0;
    const double value = std::stod(line.substr(space + 1), &used);
    EXPECT_EQ(used, line.size() - space - 1) << line;
    EXPECT_TRUE(scrape.samples.emplace(line.substr(0, space), value).second) << line << " comes twice";
  }
  return scrape;
}

constexpr const char* kLabels = R"({model_name="base",engine="0"})";

std::string labelled(const std::string& name, const std::string& label, const std::string& value) {
  return name + R"({model_name="base",engine="0",)" + label + "=\"" + value + "\"}";
}

class MetricsTest : public RoutesTest {
 protected:
  Scrape scrape() { return parse(answer("GET", "/metrics").body); }
};

TEST_F(MetricsTest, BothPathsAnswerInPrometheusTextAlsoWhileTheModelLoads) {
  for (const char* path : {"/metrics", "/v1/metrics"}) {
    const auto response = answer("GET", path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, kMetricsType);
    EXPECT_EQ(parse(response.body)[std::string("num_requests_running") + kLabels], 0);
  }
  EXPECT_EQ(answer("POST", "/metrics", "{}").status, 405);
  Routes loading;
  auto exchange = std::make_shared<FakeExchange>();
  loading.handle({.method = "GET", .path = "/metrics"}, exchange);
  const Scrape early = parse(exchange->wait().body);
  EXPECT_GT(early["process_resident_memory_bytes"], 0);
  EXPECT_GT(early["process_start_time_seconds"], 1e9);
  EXPECT_FALSE(early.families.contains("num_requests_running"));
}

TEST_F(MetricsTest, CountersGrowByWhatWasAsked) {
  completion(R"("prompt":[97,98,99],"max_tokens":5)");
  completion(R"("prompt":[97,98],"max_tokens":4,"n":3)");
  completion(R"("prompt":[97,257,99],"max_tokens":9)");
  answer("POST", "/v1/completions", R"({"model":"shift","prompt":[97],"max_tokens":2,"stream":true})");
  const Scrape scrape = this->scrape();
  for (const std::string prefix : {"", "vllm:"}) {
    EXPECT_EQ(scrape[prefix + "prompt_tokens_total" + kLabels], 3 + 2 + 3 + 1);
    EXPECT_EQ(scrape[prefix + "generation_tokens_total" + kLabels], 5 + 3 * 4 + 2 + 2);
    const std::string finish = prefix.empty() ? "request_finish_total" : "vllm:request_success_total";
    EXPECT_EQ(scrape[labelled(finish, "finished_reason", "length")], 1 + 3 + 1);
    EXPECT_EQ(scrape[labelled(finish, "finished_reason", "stop")], 1);
    EXPECT_EQ(scrape[labelled(finish, "finished_reason", "abort")], 0);
    EXPECT_EQ(scrape[prefix + "request_prompt_tokens_count" + kLabels], 6);
    EXPECT_EQ(scrape[prefix + "request_prompt_tokens_sum" + kLabels], 3 + 3 * 2 + 3 + 1);
    EXPECT_EQ(scrape[labelled(prefix + "request_prompt_tokens_bucket", "le", "2")], 4);
    EXPECT_EQ(scrape[labelled(prefix + "request_generation_tokens_bucket", "le", "+Inf")], 6);
    EXPECT_EQ(scrape[prefix + "time_to_first_token_seconds_count" + kLabels], 6);
    EXPECT_EQ(scrape[prefix + "time_per_output_token_seconds_count" + kLabels], 4 + 3 * 3 + 1 + 1);
    EXPECT_EQ(scrape[prefix + "e2e_request_latency_seconds_count" + kLabels], 6);
  }
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="shift"})"], 2);
  EXPECT_EQ(scrape[R"(chorus_model_choices_total{model="shift",finished_reason="length"})"], 1);
  EXPECT_EQ(scrape[R"(chorus_model_prompt_tokens_total{model="base"})"], 8);
  EXPECT_EQ(scrape[R"(chorus_http_requests_total{route="/v1/completions",method="POST",status="200"})"], 4);
}

TEST_F(MetricsTest, RefusedAndFailedRequestsAreCountedOnce) {
  completion(R"("prompt":[97],"max_tokens":-1)", 400);
  answer("POST", "/v1/completions", R"({"model":"made-up \"name\"","prompt":"x"})");
  answer("GET", "/no/such/path");
  answer("BREW", "/v1/models");
  engine.error_text = "broken";
  answer("POST", "/v1/completions", R"({"model":"base","prompt":[97,98],"max_tokens":3,"stream":true})");
  const auto response = answer("GET", "/metrics");
  EXPECT_EQ(response.body.find("made-up"), std::string::npos);
  const Scrape scrape = parse(response.body);
  EXPECT_EQ(scrape[R"(chorus_http_requests_total{route="/v1/completions",method="POST",status="400"})"], 1);
  EXPECT_EQ(scrape[R"(chorus_http_requests_total{route="/v1/completions",method="POST",status="404"})"], 1);
  EXPECT_EQ(scrape[R"(chorus_http_requests_total{route="none",method="GET",status="404"})"], 1);
  EXPECT_EQ(scrape[R"(chorus_http_requests_total{route="/v1/models",method="other",status="405"})"], 1);
  EXPECT_EQ(scrape[labelled("request_finish_total", "finished_reason", "error")], 1);
  EXPECT_EQ(scrape[std::string("prompt_tokens_total") + kLabels], 2);
  EXPECT_EQ(scrape[std::string("generation_tokens_total") + kLabels], 1);
}

// Its client has no memory left for answers.
class RefusingExchange : public FakeExchange {
 public:
  HttpResponse charged(HttpResponse) override { return {.status = 429}; }
};

TEST_F(MetricsTest, AnAnswerCountsWithTheStatusThatIsSent) {
  const auto exchange = std::make_shared<RefusingExchange>();
  routes.handle({.method = "GET", .path = "/v1/models", .id = "req-t", .client = client, .memory = {}}, exchange);
  EXPECT_EQ(exchange->wait().status, 429);
  EXPECT_EQ(scrape()[R"(chorus_http_requests_total{route="/v1/models",method="GET",status="429"})"], 1);
}

TEST_F(MetricsTest, ADisconnectAbortsAllChoices) {
  engine.most_tokens = 1;  // so no request ends by itself
  const auto exchange =
      send("POST", "/v1/completions", R"({"model":"base","prompt":[97],"max_tokens":9,"n":2,"stream":true})");
  EXPECT_TRUE(eventually([&] { return engine.running() == 2; }));
  exchange->disconnect();
  Scrape scrape;
  // The requests may run before the exchange has the callback that ends them.
  EXPECT_TRUE(eventually([&] {
    scrape = this->scrape();
    return scrape[labelled("request_finish_total", "finished_reason", "abort")] == 2;
  }));
  EXPECT_EQ(scrape["chorus_http_disconnects_total"], 1);
}

TEST_F(MetricsTest, ModelsBeyondTheLimitShareOneSeriesAndRemovedOnesEnd) {
  const auto metrics = std::make_shared<ServerMetrics>(ServerMetrics::Options{.max_adapters = 1});
  Routes limited(true, metrics);
  limited.serve(context);
  const auto ask = [&](const std::string& model) {
    auto exchange = std::make_shared<FakeExchange>();
    limited.handle({.method = "POST",
                    .path = "/v1/completions",
                    .headers = {{"content-type", "application/json"}},
                    .body = R"({"model":")" + model + R"(","prompt":[97],"max_tokens":2})"},
                   exchange);
    EXPECT_EQ(exchange->wait().status, 200);
  };
  ask("shift");
  ask("base");
  ask("base");
  Scrape scrape = parse(metrics->text(context.get()));
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="shift"})"], 2);
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="other"})"], 4);
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="base"})"], -1);
  models.removeAdapter("shift");
  scrape = parse(metrics->text(context.get()));
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="shift"})"], -1);
  ask("base");
  scrape = parse(metrics->text(context.get()));
  EXPECT_EQ(scrape[R"(chorus_model_generation_tokens_total{model="base"})"], 2);
}

TEST_F(MetricsTest, LoadedAdaptersAreListedInOneSeries) {
  models.putAdapter({.name = "idle", .adapter_id = 2, .fingerprint = "f", .created = 8, .text = codec});
  models.putAdapter({.name = "late", .adapter_id = 3, .fingerprint = "f", .created = 8, .text = codec});
  engine.live.adapters = {{.taskId = 1, .bytes = 10, .users = 1}, {.taskId = 2, .bytes = 10}, {.taskId = 99}};
  engine.live.waitingAdapters = {1, 3};
  engine.live.adapterCache.host = {.residentAdapters = 2, .residentBytes = 20, .maxBytes = 80};
  const auto begin = static_cast<double>(std::time(nullptr));
  const Scrape scrape = this->scrape();
  const std::string series =
      R"(vllm:lora_requests_info{max_lora="8",running_lora_adapters="idle,shift",waiting_lora_adapters="late"})";
  EXPECT_GE(scrape[series], begin);
  EXPECT_LE(scrape[series], static_cast<double>(std::time(nullptr)));
  EXPECT_EQ(std::ranges::count_if(scrape.samples, [](const auto& s) { return s.first.starts_with("vllm:lora_"); }), 1);
}

TEST_F(MetricsTest, ANameCannotPassForSeveralAdapters) {
  models.putAdapter({.name = "a,b", .adapter_id = 2, .fingerprint = "f", .created = 8, .text = codec});
  models.putAdapter({.name = "c,d", .adapter_id = 3, .fingerprint = "f", .created = 8, .text = codec});
  engine.live.adapters = {{.taskId = 1, .bytes = 10}, {.taskId = 2, .bytes = 10}};
  engine.live.waitingAdapters = {3};
  const Scrape scrape = this->scrape();
  EXPECT_GT(scrape[R"(vllm:lora_requests_info{max_lora="2",running_lora_adapters="shift",waiting_lora_adapters=""})"],
            0);
}

// An I/O thread has other connections too.
TEST_F(MetricsTest, TheTextIsMadeOnAThreadOfItsOwn) {
  std::atomic<bool> elsewhere = false;
  engine.on_live_batch = [&, caller = std::this_thread::get_id()] { elsewhere = std::this_thread::get_id() != caller; };
  EXPECT_EQ(answer("GET", "/metrics").status, 200);
  EXPECT_TRUE(elsewhere);
}

TEST_F(MetricsTest, RequestsThatWaitShareOneText) {
  std::promise<void> begun, release;
  std::atomic<int> texts = 0;
  engine.on_live_batch = [&] {
    if (++texts > 1) return;
    begun.set_value();
    release.get_future().wait();
  };
  const auto first = send("GET", "/metrics");
  begun.get_future().wait();
  std::vector<std::shared_ptr<FakeExchange>> later;
  for (int i = 0; i < 3; ++i) later.push_back(send("GET", "/metrics"));
  EXPECT_FALSE(first->done());
  release.set_value();
  for (const auto& exchange : later) EXPECT_EQ(exchange->wait().status, 200);
  EXPECT_EQ(texts, 2);
}

TEST_F(MetricsTest, TheTextIsChargedToTheClient) {
  auto charges = fillShare();
  EXPECT_EQ(answer("GET", "/metrics").status, 429);
  charges.clear();
  EXPECT_EQ(answer("GET", "/metrics").status, 200);
}

TEST_F(MetricsTest, TheEngineIsNotUsedAfterTheDrain) {
  routes.drain();
  engine.on_live_batch = [] { ADD_FAILURE(); };
  EXPECT_EQ(answer("GET", "/metrics").status, 503);
}

TEST_F(MetricsTest, LoadsOfAdaptersHaveAHistogram) {
  executor::AdapterLoadTimes& times = engine.live.adapterCache.loadTimes;
  times.counts[0] = 2;
  times.counts[6] = 1;
  times.counts.back() = 1;
  times.seconds = 40.5;
  const Scrape scrape = this->scrape();
  EXPECT_EQ(scrape[R"(chorus_adapter_load_seconds_bucket{le="0.001"})"], 2);
  EXPECT_EQ(scrape[R"(chorus_adapter_load_seconds_bucket{le="0.05"})"], 2);
  EXPECT_EQ(scrape[R"(chorus_adapter_load_seconds_bucket{le="0.1"})"], 3);
  EXPECT_EQ(scrape[R"(chorus_adapter_load_seconds_bucket{le="30"})"], 3);
  EXPECT_EQ(scrape[R"(chorus_adapter_load_seconds_bucket{le="+Inf"})"], 4);
  EXPECT_EQ(scrape["chorus_adapter_load_seconds_count"], 4);
  EXPECT_EQ(scrape["chorus_adapter_load_seconds_sum"], 40.5);
}

TEST_F(MetricsTest, TheBatchIsDescribed) {
  engine.live.maxBatchSize = 4;
  engine.live.numWaiting = 2;
  engine.live.kvCache.maxNumBlocks = 100;
  engine.live.kvCache.usedNumBlocks = 25;
  engine.live.running = {{.requestId = 7,
                          .generates = true,
                          .inStep = true,
                          .promptTokens = 3,
                          .computedTokens = 4,
                          .generatedTokens = 2,
                          .adapters = {1}},
                         {.requestId = 8, .promptTokens = 9, .adapters = {}}};
  engine.live.adapters = {{.taskId = 1, .bytes = 10, .users = 1, .onDevice = true}};
  const Json batch = Json::parse(answer("GET", "/v1/batch").body);
  EXPECT_EQ(batch["max_batch_size"], 4);
  EXPECT_EQ(batch["running"], 2);
  EXPECT_EQ(batch["waiting"], 2);
  EXPECT_EQ(batch["sequences"][0]["model"], "shift");
  EXPECT_EQ(batch["sequences"][0]["phase"], "generation");
  EXPECT_EQ(batch["sequences"][0]["generated_tokens"], 2);
  EXPECT_EQ(batch["sequences"][1]["model"], "base");
  EXPECT_EQ(batch["sequences"][1]["phase"], "context");
  EXPECT_EQ(batch["step"]["sequences_of_model"], (Json{{"shift", 1}}));
  EXPECT_EQ(batch["kv_cache"]["used_blocks"], 25);
  EXPECT_EQ(batch["adapter_cache"]["adapters"][0]["name"], "shift");
  EXPECT_EQ(batch["adapter_cache"]["adapters"][0]["in_use"], 1);
  EXPECT_EQ(batch["adapter_cache"]["adapters"][0]["state"], "device");
}

TEST_F(MetricsTest, AKeySeesOnlyItsOwnSequencesInTheBatch) {
  engine.live.running = {{.requestId = 7, .clientId = client->id(), .inStep = true, .promptTokens = 3, .adapters = {}},
                         {.requestId = 8, .clientId = client->id() + 1, .inStep = true, .adapters = {}},
                         {.requestId = 9, .inStep = true, .adapters = {}}};
  const auto shown = [&](const std::shared_ptr<const KeyRights>& rights) {
    const ModelView view(models, rights);
    return Json::parse(describeBatch(*context, view, client.get()).body);
  };
  const Json own = shown(std::make_shared<const KeyRights>());
  EXPECT_EQ(own["sequences"].size(), 1u);
  EXPECT_EQ(own["sequences"][0]["prompt_tokens"], 3);
  EXPECT_EQ(own["step"]["sequences_of_model"], (Json{{"base", 1}}));
  EXPECT_EQ(own["running"], 3) << "the load is no secret";
  EXPECT_EQ(shown(std::make_shared<const KeyRights>(KeyRights{.admin = true}))["sequences"].size(), 3u);
  EXPECT_EQ(shown(nullptr)["sequences"].size(), 3u) << "without keys";
}

TEST_F(MetricsTest, RefusalsByLimitsHaveSixSeries) {
  const auto counters = std::make_shared<LimitCounters>();
  const auto metrics = std::make_shared<ServerMetrics>(ServerMetrics::Options{.limits = counters});
  Routes limited(true, metrics,
                 std::make_shared<UsageLimits>(UsageLimits::Options{
                     .client = {.requests_per_minute = 4}, .adapter = {.tokens_per_minute = 6}, .counters = counters}));
  limited.serve(context);
  const auto ask = [&](const std::string& path, const std::string& body) {
    auto exchange = std::make_shared<FakeExchange>();
    limited.handle({.method = "POST",
                    .path = path,
                    .headers = {{"content-type", "application/json"}},
                    .body = body,
                    .client = client},
                   exchange);
    return exchange->wait().status;
  };
  EXPECT_EQ(ask("/v1/completions", R"({"model":"shift","prompt":[97,98],"max_tokens":2})"), 200);
  EXPECT_EQ(ask("/v1/completions", R"({"model":"shift","prompt":[97,98,99,97],"max_tokens":2})"), 429);
  EXPECT_EQ(ask("/v1/completions", R"({"model":"shift","prompt":[97,98,99,97,98,99,97],"max_tokens":2})"), 429);
  for (const int status : {200, 200, 200, 429}) {
    EXPECT_EQ(ask("/v1/completions", R"({"model":"base","prompt":[97],"max_tokens":1})"), status);
  }
  EXPECT_EQ(ask("/v1/messages", R"({"model":"base","max_tokens":1,"messages":[{"role":"user","content":"a"}]})"), 429);
  const Scrape scrape = parse(metrics->text(context.get()));
  const auto refusals = [&](const std::string& limit, const std::string& subject) {
    return scrape["chorus_limit_refusals_total{limit=\"" + limit + "\",subject=\"" + subject + "\"}"];
  };
  EXPECT_EQ(refusals("requests_per_minute", "client"), 2);
  EXPECT_EQ(refusals("tokens_per_minute", "adapter"), 2);
  for (const char* subject : {"client", "adapter"}) EXPECT_EQ(refusals("concurrent_requests", subject), 0) << subject;
  EXPECT_EQ(refusals("requests_per_minute", "adapter"), 0);
  EXPECT_EQ(refusals("tokens_per_minute", "client"), 0);
  EXPECT_EQ(std::ranges::count_if(scrape.samples, [](const auto& s) { return s.first.starts_with("chorus_limit_"); }),
            6);
}

TEST_F(MetricsTest, EveryMetricIsInTheDocumentation) {
  completion(R"("prompt":[97],"max_tokens":2)");
  std::ifstream in(test::sourceDir() / "docs" / "metrics.md");
  std::set<std::string> documented;
  for (std::string line; std::getline(in, line);) {
    if (line == "## The live batch") break;
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find('|', 1));
    for (size_t at = cell.find('`'); at != std::string::npos; at = cell.find('`', at + 1)) {
      const size_t end = cell.find('`', at + 1);
      documented.insert(cell.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  EXPECT_EQ(documented, scrape().families);
}

TEST_F(MetricsTest, EachRequestHasOneAccessLine) {
  std::ostringstream out;
  auto log = std::make_shared<AccessLog>(LogFormat::kJson, std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  Routes logged(true, std::make_shared<ServerMetrics>(ServerMetrics::Options{.access_log = log}));
  logged.serve(context);
  engine.adapter_content = "abc";
  const auto ask = [&](const std::string& path, const std::string& body) {
    auto exchange = std::make_shared<FakeExchange>();
    logged.handle({.method = "POST",
                   .path = path,
                   .query = "key=secret",
                   .headers = {{"content-type", "application/json"},
                               {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
                   .body = body,
                   .id = "req-7"},
                  exchange);
    exchange->wait();
  };
  ask("/v1/completions", R"({"model":"shift","prompt":[97,98],"max_tokens":3})");
  ask("/v1/completions", R"({"model":"invented","prompt":"hidden"})");
  ask("/nowhere\n", "{}");
  std::vector<Json> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["request_id"], "req-7");
  EXPECT_EQ(lines[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[0]["route"], "/v1/completions");
  EXPECT_EQ(lines[0]["model"], "shift");
  EXPECT_EQ(lines[0]["adapter_content_hash"], "abc");
  EXPECT_EQ(lines[0]["prompt_tokens"], 2);
  EXPECT_EQ(lines[0]["generated_tokens"], 3);
  EXPECT_EQ(lines[0]["finish_reason"], "length");
  EXPECT_EQ(lines[0]["disconnected"], false);
  EXPECT_EQ(lines[1]["status"], 404);
  EXPECT_FALSE(lines[1].contains("model"));
  EXPECT_EQ(lines[2]["route"], "");
  for (const char* secret : {"secret", "hidden", "invented", "nowhere"}) {
    EXPECT_EQ(out.str().find(secret), std::string::npos) << secret;
  }
}

TEST(AtomicHistogramTest, ABoundBelongsToItsBucket) {
  constexpr double kBounds[] = {1, 2};
  AtomicHistogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 3.0}) histogram.observe(value);
  histogram.observe(2, 2);
  const auto collected = histogram.collect();
  EXPECT_EQ(collected.bucket[0].cumulative_count, 2u);
  EXPECT_EQ(collected.bucket[1].cumulative_count, 6u);
  EXPECT_EQ(collected.bucket[2].cumulative_count, 7u);
  EXPECT_EQ(collected.sample_count, 7u);
  EXPECT_EQ(collected.sample_sum, 12);
}

TEST(TraceContextTest, OnlyValidHeadersHaveATraceId) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const std::string_view id = "0af7651916cd43dd8448eb211c80319c";
  EXPECT_EQ(traceIdOf(good), id);
  EXPECT_EQ(traceIdOf("cc" + good.substr(2) + "-more"), id);
  for (const std::string& bad : std::vector<std::string>{
           std::string(), good + "-more", good + "0", "ff" + good.substr(2), "cc" + good.substr(2) + "more",
           good.substr(0, 54), "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x"}) {
    EXPECT_EQ(traceIdOf(bad), "") << bad;
  }
}

}  // namespace
}  // namespace chorus::server
