// The routes over a fake engine, with one adapter, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/testing/eventually.h"
#include "server/routes/routes.h"
#include "server/testing/fakes.h"

namespace chorus::server {

// The usage of an answer, in tokens.
inline Json usageOf(int64_t prompt, int64_t completion, int64_t cached = 0) {
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

class RoutesTest : public ::testing::Test {
 protected:
  explicit RoutesTest(std::shared_ptr<UsageLimits> limits = nullptr)
      : routes(true, std::make_shared<ServerMetrics>(), std::move(limits)) {
    models.putAdapter({.name = "shift", .adapter_id = 1, .fingerprint = "fp_adapter", .created = 8, .text = codec});
    context =
        std::make_shared<ApiContext>(ApiContext{engine, models, intake, adapter_intake, list_intake, delivery, {}, {}});
    context->defaults.end_ids = {FakeCodec::kEnd};
    context->defaults.temperature = 0;
    routes.serve(context);
  }
  ~RoutesTest() override {
    intake.finish();
    adapter_intake.finish();
    list_intake.finish();
    engine.stop();
    delivery.finish();
  }

  std::shared_ptr<FakeExchange> send(const std::string& method, const std::string& path, const std::string& body = "",
                                     HttpHeaders headers = {}) {
    const bool typed = std::any_of(headers.begin(), headers.end(), [](auto& h) { return h.first == "content-type"; });
    if (!body.empty() && !typed) headers.emplace_back("content-type", "application/json");
    auto exchange = std::make_shared<FakeExchange>();
    routes.handle({.method = method,
                   .path = path,
                   .headers = std::move(headers),
                   .body = body,
                   .id = "req-t",
                   .received = std::chrono::steady_clock::now(),
                   .client = client,
                   .memory = {}},
                  exchange);
    return exchange;
  }
  HttpResponse answer(const std::string& method, const std::string& path, const std::string& body = "",
                      HttpHeaders headers = {}) {
    return send(method, path, body, std::move(headers))->wait();
  }
  Json completion(const std::string& fields, int status = 200) {
    const auto response = answer("POST", "/v1/completions", "{\"model\":\"base\"," + fields + "}");
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  Json chat(const std::string& fields, int status = 200) {
    const auto response = answer("POST", "/v1/chat/completions", "{\"model\":\"base\"," + fields + "}");
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  // The JSON payloads of a stream; checks that it ends with [DONE].
  static std::vector<Json> events(const std::string& body) {
    std::vector<Json> out;
    size_t at = 0;
    bool done = false;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      EXPECT_NE(end, std::string::npos);
      const std::string event = body.substr(at, end - at);
      EXPECT_TRUE(event.starts_with("data: "));
      EXPECT_FALSE(done);
      if (event == "data: [DONE]")
        done = true;
      else
        out.push_back(Json::parse(event.substr(6)));
      at = end + 2;
    }
    EXPECT_TRUE(done);
    return out;
  }

  // Charges all memory that the client may hold.
  std::vector<ClientCharge> fillShare() {
    endRequests();
    std::vector<ClientCharge> charges;
    const auto fill = [&](const MemoryBudget& budget, size_t most) {
      while (budget.used() < budget.limit()) {
        ClientCharge& charge = charges.emplace_back(client);
        EXPECT_EQ(charge.resize(std::min(budget.limit() - budget.used(), most)), MemoryAnswer::kGranted);
      }
    };
    fill(client->memory().large, SIZE_MAX);
    fill(client->memory().small, ClientCharge::kSmall);
    return charges;
  }

  // Waits until no request holds memory. That of an answered one is charged until its handler has returned, on any
  // thread. A response that a test keeps is still charged.
  void endRequests() {
    EXPECT_TRUE(eventually([&] { return clients->used() == 0; })) << clients->used();
  }

  std::shared_ptr<const FakeCodec> codec = std::make_shared<FakeCodec>();
  ModelCatalog models{{.name = "base", .fingerprint = "fp_base", .created = 7, .text = codec}};
  Intake intake{IntakeOptions{.threads = 1, .reserve = false}};
  Intake adapter_intake{IntakeOptions{.threads = 1, .reserve = false}};
  Intake list_intake{IntakeOptions{.threads = 1, .reserve = false}};
  WorkerPool delivery{2};
  FakeEngine engine;
  std::shared_ptr<ApiContext> context;
  Routes routes;
  std::shared_ptr<ClientRegistry> clients =
      std::make_shared<ClientRegistry>(ClientMemoryLimits{.server = 16 << 20, .client = 4 << 20});
  std::shared_ptr<Client> client = clients->find("192.0.2.1");
};

}  // namespace chorus::server
