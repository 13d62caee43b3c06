// An ExecutorCore over FakeNetwork with fake adapters. A fake adapter's content is the name of its directory; its size
// in bytes is the number after the last '-' of that name, or 1.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "base/testing/eventually.h"
#include "models/compose_adapters.h"
#include "runtime/executor_core.h"
#include "runtime/testing/fake_network.h"

namespace chorus::testing {

inline int64_t fakeAdapterBytes(const std::string& name) {
  const auto dash = name.rfind('-');
  return dash == std::string::npos ? 1 : std::stoll(name.substr(dash + 1));
}

inline std::shared_ptr<const AdapterSource> fakeSource(const std::string& name) {
  auto source = std::make_shared<AdapterSource>();
  source->directory = name;
  source->content_hash = name;
  source->bytes = fakeAdapterBytes(name);
  return source;
}

inline std::shared_ptr<const PreparedAdapter> fakeParts(const std::string& name) {
  auto adapter = std::make_shared<PreparedAdapter>(fakeAdapter(name));
  adapter->bytes = static_cast<size_t>(fakeAdapterBytes(name));
  return adapter;
}

// The content of a composition. A term is a fake adapter's name and its weight.
inline std::string fakeComposition(const std::vector<std::pair<std::string, float>>& terms) {
  std::vector<WeightedAdapter> adapters;
  for (const auto& [name, weight] : terms) adapters.push_back({fakeParts(name), weight});
  return terms.size() == 1 && terms[0].second == 1.0f ? terms[0].first : composedHash(adapters);
}

class CoreFixture : public ::testing::Test {
 protected:
  static constexpr int32_t kVocab = 50;

  CoreFixture() {
    options.requests = {40, 64, 24, 1, kVocab, true};
    options.scheduler.max_batch_size = 4;
    options.scheduler.max_num_tokens = 24;
    options.scheduler.kv.tokens_per_block = 4;
    options.scheduler.kv_blocks = 32;
    setAdapterRoom(100);
    // An adapter that comes as tensors is named by its first weight.
    load = [this](const AdapterSource& source) {
      ++loads;
      if (source.reloadable()) return fakeParts(source.directory.string());
      return fakeParts(fmt::format("tensors{}", *static_cast<const int32_t*>(source.weights->getData())));
    };
  }

  void setAdapterRoom(int64_t host, int64_t device) {
    options.adapter_host_capacity = {host, AdapterSize::kUnlimited};
    options.scheduler.adapter_budget = {device, AdapterSize::kUnlimited};
  }
  void setAdapterRoom(int64_t bytes) { setAdapterRoom(bytes, bytes); }

  ExecutorCore& start() {
    options.requests.max_num_tokens = options.scheduler.max_num_tokens;
    options.requests.chunked_context = options.scheduler.chunked_context;
    auto made = std::make_unique<FakeNetwork>(kVocab, options.scheduler.kv_blocks, options.scheduler.kv);
    network = made.get();
    network->before_step = before_step;
    network->after_row = after_row;
    core = std::make_unique<ExecutorCore>(options, std::move(made), load);
    return *core;
  }

  executor::IdType enqueue(const executor::Request& request) { return core->enqueue({&request, 1}, nullptr)[0]; }

  // Waits for all responses of a request.
  std::vector<executor::Response> finish(executor::IdType id) {
    std::vector<executor::Response> all;
    for (;;) {
      auto responses = core->responses().awaitOne(id, kPatience);
      if (responses.empty()) {
        ADD_FAILURE() << "request " << id << " did not answer in time";
        return all;
      }
      for (auto& response : responses) all.push_back(std::move(response));
      if (all.back().hasError() || all.back().getResult().isFinal) return all;
    }
  }
  executor::Result resultOf(executor::IdType id) {
    const auto all = finish(id);
    if (all.empty() || all.back().hasError()) {
      ADD_FAILURE() << "request " << id << ": " << (all.empty() ? "no answer" : all.back().getErrorMsg());
      return {};
    }
    return all.back().getResult();
  }
  // The fault of a request that fails because of an adapter; an empty one if it does not.
  executor::AdapterFault faultOf(executor::IdType id) {
    const auto all = finish(id);
    return all.empty() ? executor::AdapterFault() : all.back().getAdapterFault().value_or(executor::AdapterFault());
  }
  std::string errorOf(executor::IdType id) {
    const auto all = finish(id);
    return !all.empty() && all.back().hasError() ? all.back().getErrorMsg() : "";
  }

  executor::VecTokens answer(const executor::Request& request) {
    return resultOf(enqueue(request)).outputTokenIds.at(0);
  }

  // Call before start(): a load of this directory waits at the gate and then fails.
  void breakLoad(const std::string& directory, Gate& gate, const std::string& reason) {
    load = [directory, reason, &gate, plain = load](const AdapterSource& source) {
      if (source.directory != directory) return plain(source);
      gate.pass();
      fail(ErrorCode::kCorrupt, "{}", reason);
    };
  }
  // Call before start(): this step waits at the gate.
  void holdStep(int number, Gate& gate) {
    before_step = [number, &gate](int step, const StepInput&) {
      if (step == number) gate.pass();
    };
  }

  static executor::Request request(executor::VecTokens prompt, int32_t max_tokens, bool streaming = false) {
    executor::OutputConfig output;
    output.excludeInputFromOutput = true;
    return executor::Request(std::move(prompt), max_tokens, streaming, executor::SamplingConfig(), output);
  }

  CoreOptions options;
  LoadAdapter load;
  std::atomic<int> loads{0};
  std::function<void(int, const StepInput&)> before_step;
  std::function<void(const std::vector<int32_t>&, std::span<float>)> after_row;
  FakeNetwork* network = nullptr;
  std::unique_ptr<ExecutorCore> core;
};

}  // namespace chorus::testing
