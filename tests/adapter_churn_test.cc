// Runs many more adapters than the cache holds. Every answer is its own adapter's, no request is lost, the cache
// behaves as its plain model, and memory does not grow.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/testing/eventually.h"
#include "engine/rank_group.h"
#include "executor_runs.h"
#include "formats/safetensors.h"
#include "runtime/engine_adapters.h"
#include "runtime/executor_core.h"
#include "runtime/testing/plain_adapter_cache.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

// CHORUS_CHURN="ADAPTERS REQUESTS" sets another size (scripts/soak.sh).
struct ChurnSize {
  size_t adapters = 100, requests = 600;
  static constexpr size_t kCached = 32, kInFlight = 24;
  static constexpr double kExponent = 0.8;
  bool full() const { return requests >= 10'000; }

  static ChurnSize asked() {
    ChurnSize size;
    if (const char* text = std::getenv("CHORUS_CHURN")) std::istringstream(text) >> size.adapters >> size.requests;
    return size;
  }
};

// A rank-8 adapter of three linears of every layer, large enough to change the answers.
fs::path writeAdapter(const fs::path& dir, const ModelConfig& config, uint32_t seed) {
  fs::create_directories(dir);
  constexpr int64_t kRank = 8;
  std::ofstream(dir / "adapter_config.json") << Json{
      {"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 16}, {"target_modules", {"q_proj", "v_proj", "down_proj"}}};
  const int64_t head = config.head_size;
  const std::vector<std::tuple<std::string, int64_t, int64_t>> modules = {
      {"self_attn.q_proj", config.hidden_size, config.num_attention_heads * head},
      {"self_attn.v_proj", config.hidden_size, config.num_key_value_heads * head},
      {"mlp.down_proj", config.intermediate_size, config.hidden_size}};
  std::vector<SafetensorsWriter::Declaration> tensors;
  for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [name, in, out] : modules) {
      const std::string module = fmt::format("base_model.model.model.layers.{}.{}", layer, name);
      tensors.push_back({module + ".lora_A.weight", DType::kFloat32, {kRank, in}});
      tensors.push_back({module + ".lora_B.weight", DType::kFloat32, {out, kRank}});
    }
  }
  SafetensorsWriter writer(dir / "adapter_model.safetensors", tensors);
  std::mt19937 random(seed);
  std::vector<float> values;
  for (const auto& tensor : tensors) {
    values.resize(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
    std::uniform_real_distribution<float> uniform(-0.06f, 0.06f);
    for (float& value : values) value = uniform(random);
    writer.write(tensor.name, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
  return dir;
}

// An executor with an observer of its adapter cache.
class WatchedExecutor {
 public:
  using Observer = std::function<void(const AdapterCacheEvent&)>;

  WatchedExecutor(const fs::path& engine_dir, AdapterSize capacity, Observer observer) {
    auto engines = RankGroup::loadEngines(engine_dir);
    const Engine& engine = *engines.front();
    const SessionOptions session = {
        .max_batch_size = 32, .max_num_tokens = 1024, .tokens_per_block = 16, .kv_blocks = 600};
    CoreOptions core;
    core.scheduler.max_batch_size = session.max_batch_size;
    core.scheduler.max_num_tokens = session.max_num_tokens;
    core.scheduler.kv.tokens_per_block = session.tokens_per_block;
    core.scheduler.kv_blocks = session.kv_blocks;
    core.scheduler.adapter_budget = capacity;
    core.adapter_host_capacity = capacity;
    core.adapter_observer = std::move(observer);
    core.iter_stats_max = 1;
    const auto vocab = static_cast<int32_t>(engine.config().vocab_size);
    core.requests = {
        .max_input_len = 64, .max_seq_len = 128, .max_num_tokens = 1024, .max_beam_width = 1, .vocab_size = vocab};
    auto runner = std::make_unique<Runner>(std::move(engines), session);
    adapters_ = std::make_unique<EngineAdapters>(runner->ranks,
                                                 [] { return ThrottleClock::ofThisThread([] { return false; }); });
    core_ = std::make_unique<ExecutorCore>(core, std::move(runner),
                                           [this](const AdapterSource& source) { return adapters_->load(source); });
  }

  AdapterSize add(uint64_t task_id, const fs::path& dir) {
    const auto source = adapters_->fileSource(dir);
    core_->registerAdapter(task_id, source);
    return {source->bytes, source->elements};
  }
  ExecutorCore& core() { return *core_; }

 private:
  struct Runner : StepRunner {
    Runner(std::vector<std::shared_ptr<const Engine>> engines, const SessionOptions& options)
        : ranks(std::move(engines), {.threads = 2}, options) {}
    std::span<const float> run(const StepInput& input) override { return ranks.run(input); }
    std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) override {
      return ranks.composeAdapters(terms);
    }
    RankGroup ranks;
  };

  std::unique_ptr<EngineAdapters> adapters_;
  std::unique_ptr<ExecutorCore> core_;
};

// Each adapter has its own prompt.
executor::Request requestFor(size_t adapter, int32_t vocab) {
  std::mt19937 random(static_cast<uint32_t>(adapter) + 77);
  std::vector<int32_t> prompt(4 + random() % 30);
  for (int32_t& token : prompt) token = 3 + static_cast<int32_t>(random() % static_cast<uint32_t>(vocab - 3));
  executor::OutputConfig output;
  output.excludeInputFromOutput = true;
  output.returnLogProbs = true;
  executor::Request request(prompt, 6, false, executor::SamplingConfig(), output);
  request.setEndId(-1);
  request.setLoraConfig(executor::LoraConfig(adapter + 1));
  return request;
}

// The answer's tokens and the bits of their log probabilities.
std::string answerOf(const executor::Response& response) {
  if (response.hasError()) return "error: " + response.getErrorMsg();
  const executor::Result& result = response.getResult();
  std::string answer;
  for (const int32_t token : result.outputTokenIds.at(0)) answer += std::to_string(token) + " ";
  for (const float p : result.logProbs.value().at(0)) answer += std::to_string(std::bit_cast<uint32_t>(p)) + " ";
  return answer;
}

std::string answerNext(ExecutorCore& core, executor::IdType id) {
  const auto responses = core.responses().awaitOne(id, kPatience);
  return responses.empty() ? "nothing came" : answerOf(responses.back());
}

int64_t anonymousKb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atoll(line.c_str() + 8);
  }
  return 0;
}

TEST(AdapterChurn, EveryAnswerIsTheAdaptersOwnAndMemoryDoesNotGrow) {
  const ChurnSize size = ChurnSize::asked();
  const fs::path engine_dir = testEngine(test::sourceDir() / "examples/demo/base", DType::kBFloat16);
  const auto engine = Engine::load(engine_dir);
  const auto vocab = static_cast<int32_t>(engine->config().vocab_size);
  const TempDir dir;
  std::vector<fs::path> adapters;
  for (size_t i = 0; i < size.adapters; ++i) {
    adapters.push_back(writeAdapter(dir.path() / std::to_string(i), engine->config(), static_cast<uint32_t>(i) + 1));
  }

  AdapterSize one;
  std::vector<std::string> solo;
  {
    WatchedExecutor alone(engine_dir, {AdapterSize::kUnlimited, AdapterSize::kUnlimited}, nullptr);
    for (size_t i = 0; i < size.adapters; ++i) {
      one = alone.add(i + 1, adapters[i]);
      const executor::Request request = requestFor(i, vocab);
      solo.push_back(answerNext(alone.core(), alone.core().enqueue({&request, 1}, nullptr)[0]));
      alone.core().unregisterAdapter(i + 1);
    }
  }
  const std::set<std::string> different(solo.begin(), solo.end());
  ASSERT_GT(different.size(), size.adapters * 9 / 10) << "adapters that say the same can't be told apart";

  AdapterSize capacity;
  for (size_t i = 0; i < ChurnSize::kCached; ++i) capacity += one;
  testing::PlainAdapterCache plain(capacity, capacity);
  std::string disagreement;
  WatchedExecutor executor(engine_dir, capacity, [&](const AdapterCacheEvent& event) {
    try {
      if (disagreement.empty()) plain.replay(event);
    } catch (const std::exception& error) {
      disagreement = error.what();
    }
  });
  for (size_t i = 0; i < size.adapters; ++i) executor.add(i + 1, adapters[i]);

  std::vector<double> weights;
  for (size_t i = 0; i < size.adapters; ++i) {
    weights.push_back(std::pow(static_cast<double>(i + 1), -ChurnSize::kExponent));
  }
  std::discrete_distribution<size_t> zipf(weights.begin(), weights.end());
  std::mt19937 random(11);
  std::deque<std::pair<executor::IdType, size_t>> in_flight;
  size_t answered = 0;
  int64_t anonymous_before = 0;
  const auto takeOne = [&] {
    const auto [id, adapter] = in_flight.front();
    in_flight.pop_front();
    ASSERT_EQ(answerNext(executor.core(), id), solo[adapter]) << "request " << answered << ", adapter " << adapter;
    ++answered;
    if (answered == size.requests / 5) anonymous_before = anonymousKb();
  };
  for (size_t i = 0; i < size.requests && !HasFatalFailure(); ++i) {
    if (in_flight.size() == ChurnSize::kInFlight) takeOne();
    const size_t adapter = zipf(random);
    const executor::Request request = requestFor(adapter, vocab);
    in_flight.emplace_back(executor.core().enqueue({&request, 1}, nullptr)[0], adapter);
  }
  while (!in_flight.empty() && !HasFatalFailure()) takeOne();
  ASSERT_EQ(answered, size.requests);
  const int64_t anonymous_after = anonymousKb();
  // In short runs memory still grows by some megabytes of allocator arenas per thread.
  const int64_t allowed = size.requests >= 10'000 ? 4096 : 16384;
  EXPECT_LE(anonymous_after - anonymous_before, std::max<int64_t>(anonymous_before / 50, allowed))
      << "anonymous memory grew from " << anonymous_before << " kB after a fifth of the requests";

  executor.core().shutdown();
  EXPECT_EQ(disagreement, "");
  const executor::AdapterCacheStats stats = executor.core().adapterCacheStats();
  std::printf(
      "%zu adapters, %zu requests: %lld loads, %lld evictions, %lld hits; anonymous memory %lld kB, then %lld\n",
      size.adapters, size.requests, static_cast<long long>(stats.loads), static_cast<long long>(stats.host.evictions),
      static_cast<long long>(stats.host.hits), static_cast<long long>(anonymous_before),
      static_cast<long long>(anonymous_after));
  EXPECT_EQ(stats.loads, plain.loads);
  EXPECT_EQ(stats.failedLoads, 0);
  EXPECT_EQ(stats.host.evictions, plain.host.evictions);
  EXPECT_EQ(stats.host.hits, plain.host.hits);
  EXPECT_EQ(stats.host.misses, plain.host.misses);
  EXPECT_EQ(stats.device.evictions, plain.device.evictions);
  EXPECT_EQ(stats.host.hits + stats.host.misses, static_cast<int64_t>(size.requests));
  EXPECT_GE(stats.loads, static_cast<int64_t>(size.requests / 4));
  EXPECT_GE(stats.host.evictions, static_cast<int64_t>(size.requests / 5));
  if (size.full()) {
    EXPECT_GE(stats.loads, 5000);
    EXPECT_GE(stats.host.evictions, 4000);
  }
}

}  // namespace
}  // namespace chorus::test
