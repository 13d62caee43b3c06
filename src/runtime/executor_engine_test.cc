// The public Executor over a real engine: limits of the engine and the configuration, and adapters sent as tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/testing/error_of.h"
#include "engine/adapter_limits.h"
#include "engine/rank_group.h"
#include "runtime/adapter_cache/adapter_sizing.h"
#include "runtime/adapter_cache/tensor_source.h"
#include "runtime/testing/engine_fixture.h"

namespace chorus::executor {
namespace {

using ::testing::HasSubstr;

class ExecutorEngineTest : public EngineFixture {
 protected:
  static std::string refusal(const ExecutorConfig& config, ModelType type = ModelType::kDECODER_ONLY) {
    return errorOf([&] { Executor executor(directory_ / "lora", type, config); });
  }
};

TEST_F(ExecutorEngineTest, LimitsComeFromTheEngine) {
  Executor executor(directory_ / "lora", ModelType::kDECODER_ONLY, small());
  EXPECT_EQ(executor.getMaxSeqLen(), 128);
  EXPECT_EQ(executor.getMaxInputLen(), 100);
  EXPECT_EQ(executor.getMaxBatchSize(), 4);
  EXPECT_TRUE(executor.canEnqueueRequests());
  EXPECT_THAT(answer(executor, Request(VecTokens(101, 1), 1)).getErrorMsg(), HasSubstr("Prompt length (101)"));
  executor.shutdown();
  EXPECT_FALSE(executor.canEnqueueRequests());
}

TEST_F(ExecutorEngineTest, SettingsThatCannotBeMetAreNamed) {
  ExecutorConfig config = small();
  EXPECT_EQ(refusal(config), "");
  EXPECT_THAT(refusal(config, ModelType::kENCODER_ONLY), HasSubstr("modelType"));
  config.setMaxBatchSize(5);
  EXPECT_THAT(refusal(config), HasSubstr("maxBatchSize 5 is larger than the engine's max_batch_size 4"));
  config = small();
  config.setMaxNumTokens(8);
  EXPECT_THAT(refusal(config), HasSubstr("maxNumTokens 8"));
  config = small();
  config.getKvCacheConfigRef().setMaxTokens(100);
  EXPECT_THAT(refusal(config), HasSubstr("maxTokens 100 does not hold one sequence"));
  config = small();
  config.setMaxBeamWidth(2);
  EXPECT_THAT(refusal(config), HasSubstr("maxBeamWidth 2"));
  config = small();
  config.setIsa("sse9");
  EXPECT_THAT(refusal(config), HasSubstr("sse9"));
  config = small();
  PeftCacheConfig adapters;
  adapters.setDeviceCachePercent(1.5f);
  config.setPeftCacheConfig(adapters);
  EXPECT_THAT(refusal(config), HasSubstr("deviceCachePercent"));
}

// A cache level that cannot hold the engine's largest adapter (here rank 64 on all seven linears of 4 layers) is
// refused with TensorRT-LLM's text, in the unit that the level is sized in.
TEST_F(ExecutorEngineTest, RoomForAnAdapterIsForTheModulesThatAreEnabled) {
  BuildConfig build;
  build.max_batch_size = 4;
  build.max_seq_len = 128;
  build.lora_plugin = true;
  build.lora_target_modules = {"attn_q", "attn_v"};
  buildEngine(directory_ / "checkpoint", directory_ / "qv", build, 1);
  ExecutorConfig config = small();
  PeftCacheConfig adapters;
  adapters.setMaxHostAdapters(1);
  config.setPeftCacheConfig(adapters);
  const auto room = [&](const char* engine) {
    return Executor(directory_ / engine, ModelType::kDECODER_ONLY, config).getAdapterCacheStats().host.maxBytes;
  };
  EXPECT_LT(room("qv"), room("lora") / 2);
}

TEST_F(ExecutorEngineTest, ACacheMustHoldOneAdapterOfTheLargestSize) {
  const auto refusalOf = [](const std::function<void(PeftCacheConfig&)>& set) {
    ExecutorConfig config = small();
    PeftCacheConfig peft;
    set(peft);
    config.setPeftCacheConfig(peft);
    return refusal(config);
  };
  const auto engine = Engine::load(directory_ / "lora");
  const AdapterSizing sizing(*engine);
  const AdapterSize largest = sizing.fullAdapter(64);
  const std::string text = "Not enough space allocated to {} LoRA cache to hold 1 max sized LoRA {} < {}";
  EXPECT_EQ(refusalOf([&](auto& peft) { peft.setHostCacheSize(largest.bytes - 1); }),
            fmt::format(fmt::runtime(text), "host", largest.bytes - 1, largest.bytes));
  EXPECT_EQ(refusalOf([&](auto& peft) { peft.setHostCacheSize(largest.bytes); }), "");
  EXPECT_EQ(refusalOf([&](auto& peft) { peft.setNumHostModuleLayer(1); }),
            fmt::format(fmt::runtime(text), "host", sizing.widestModuleElements(), largest.elements));
  EXPECT_EQ(refusalOf([&](auto& peft) { peft.setNumDeviceModuleLayer(1); }),
            fmt::format(fmt::runtime(text), "device", sizing.widestModuleElements(), largest.elements));
  EXPECT_THAT(refusalOf([](auto& peft) { peft.setDeviceCachePercent(1e-12f); }),
              HasSubstr("Not enough space allocated to device LoRA cache to hold 1 max sized LoRA"));
  const auto module_layers =
      static_cast<SizeType32>((largest.elements + sizing.widestModuleElements() - 1) / sizing.widestModuleElements());
  EXPECT_EQ(refusalOf([&](auto& peft) {
              peft.setNumHostModuleLayer(module_layers);
              peft.setNumDeviceModuleLayer(module_layers);
            }),
            "");
  EXPECT_EQ(refusalOf([](auto& peft) {
              peft.setMaxHostAdapters(1);
              peft.setMaxDeviceAdapters(1);
            }),
            "");
  // A smaller maxAdapterSize needs less room.
  EXPECT_EQ(refusalOf([&](auto& peft) {
              peft.setMaxAdapterSize(16);
              peft.setHostCacheSize(sizing.fullAdapter(16).bytes);
            }),
            "");
  EXPECT_THAT(refusalOf([](auto& peft) { peft.setMaxHostAdapters(0); }), HasSubstr("maxHostAdapters 0"));
}

// AdapterSizing's formula for a full adapter gives the size that packing really takes.
TEST_F(ExecutorEngineTest, FullAdaptersAreSizedAsTheyArePacked) {
  const auto engine = Engine::load(directory_ / "lora");
  const RankGroup ranks(RankGroup::loadEngines(directory_ / "lora"), {.threads = 1}, {.kv_blocks = 1});
  const auto table = engine->architecture().weightTable(engine->config());
  const Adapter adapter =
      readPeftAdapter(kModel / "adapters" / "all_r8_bf16", "adapter", {engine->config(), table, 64});
  const AdapterSizing sizing(*engine);
  EXPECT_EQ(sizing.fullAdapter(8), (AdapterSize{ranks.preparedBytes(adapter), adapterElements(adapter)}));
  const auto prepared = ranks.prepareAdapter(adapter);
  EXPECT_EQ(static_cast<int64_t>(prepared->bytes), sizing.fullAdapter(8).bytes);
  EXPECT_EQ(prepared->elements, sizing.fullAdapter(8).elements);
}

// Memory for 8 adapters of rank 64 holds 32 of rank 16 or 64 of rank 8, on all modules or a few, like in NVIDIA NIM.
TEST_F(ExecutorEngineTest, RoomForLargeAdaptersHoldsManySmallOnes) {
  const auto engine = Engine::load(directory_ / "lora");
  const AdapterSizing sizing(*engine);
  PeftCacheConfig peft;
  peft.setMaxHostAdapters(8);
  const AdapterSize host = adapterCapacity(peft, *engine, 0).host;
  for (const int32_t rank : {64, 16, 8}) {
    const AdapterSize one = sizing.fullAdapter(rank);
    const int64_t fit = 8 * 64 / rank;
    EXPECT_TRUE((AdapterSize{fit * one.bytes, fit * one.elements}.within(host))) << rank;
    EXPECT_FALSE((AdapterSize{fit * one.bytes, (fit + 1) * one.elements}.within(host))) << rank;
  }
}

// A window of 20 tokens holds 2 or 3 blocks of 16; a context passes through them in chunks of at most 64 tokens.
TEST_F(ExecutorEngineTest, ASequenceLongerThanTheCacheRunsInItsWindow) {
  ExecutorConfig config = small();
  config.setEnableChunkedContext(true);
  config.getKvCacheConfigRef().setMaxAttentionWindowVec({20});
  std::vector<VecTokens> answers;
  for (const SizeType32 cache_tokens : {512, 112}) {
    config.getKvCacheConfigRef().setMaxTokens(cache_tokens);
    Executor executor(directory_ / "bare", ModelType::kDECODER_ONLY, config);
    EXPECT_EQ(executor.getMemoryUse().kvCacheTokens, cache_tokens == 512 ? 7 * 4 * 16 : 112);
    VecTokens prompt(90);
    std::iota(prompt.begin(), prompt.end(), 3);
    const Response response = answer(executor, Request(prompt, 38));
    ASSERT_FALSE(response.hasError()) << response.getErrorMsg();
    answers.push_back(response.getResult().outputTokenIds.at(0));
    EXPECT_EQ(answers.back().size(), 128);
    EXPECT_EQ(executor.getKvCacheStats().usedNumBlocks, 0);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// The scale is a power of two, so that folding it into B changes no bit.
TEST_F(ExecutorEngineTest, TensorsAnswerAsTheirDirectoryDoes) {
  Executor executor(directory_ / "lora", ModelType::kDECODER_ONLY, small());
  const auto adapter_dir = kModel / "adapters" / "all_r8_bf16";
  executor.registerAdapter(1, adapter_dir);
  OutputConfig output;
  output.returnGenerationLogits = true;
  const auto ask = [&](std::optional<LoraConfig> lora) {
    Request request({5, 17, 40, 3, 99}, 12, false, SamplingConfig(), output);
    request.setLoraConfig(std::move(lora));
    const Response response = answer(executor, request);
    if (response.hasError()) ADD_FAILURE() << response.getErrorMsg();
    return response.hasError() ? Result() : response.getResult();
  };
  const auto logitsOf = [](const Result& result) {
    const Tensor tensor = result.generationLogits.value_or(Tensor());
    return std::string(static_cast<const char*>(tensor.getData()), tensor.getSizeInBytes());
  };
  const Result base = ask(std::nullopt), by_directory = ask(LoraConfig(1));
  const Result by_tensors = ask(tensorsOf(adapter_dir, 2)), by_id = ask(LoraConfig(2));
  EXPECT_NE(logitsOf(base), logitsOf(by_directory));
  EXPECT_EQ(by_tensors.outputTokenIds, by_directory.outputTokenIds);
  EXPECT_EQ(logitsOf(by_tensors), logitsOf(by_directory));
  EXPECT_EQ(logitsOf(by_id), logitsOf(by_directory));
}

// The size estimated for an adapter sent as tensors, before it is read, is never smaller than its packed size.
TEST_F(ExecutorEngineTest, TensorsAreCountedAtAnUpperBoundOfTheirSize) {
  const auto engine = Engine::load(directory_ / "lora");
  const RankGroup ranks(RankGroup::loadEngines(directory_ / "lora"), {.threads = 1}, {.kv_blocks = 1});
  const auto table = engine->architecture().weightTable(engine->config());
  for (const char* name : {"qv_r3_f32", "all_r8_bf16", "mlp_rslora_r16_f16", "pattern_f32"}) {
    const auto dir = kModel / "adapters" / name;
    const Adapter adapter = readPeftAdapter(dir, name, {engine->config(), table, 64});
    const auto source = tensorSource(tensorsOf(dir, 1), packedRowBytes(engine->packer(), engine->config().dtype, 1));
    EXPECT_GE(source->bytes, ranks.preparedBytes(adapter)) << name;
    EXPECT_GE(source->elements, adapterElements(adapter)) << name;
  }
}

TEST_F(ExecutorEngineTest, AdaptersThatCannotBeServedAreNamed) {
  const auto adapter_dir = kModel / "adapters" / "all_r8_bf16";
  Executor with(directory_ / "lora", ModelType::kDECODER_ONLY, small());
  EXPECT_THROW(with.registerAdapter(1, kModel / "adapters" / "none"), Error);
  EXPECT_EQ(errorOf([&] { with.registerAdapter(1, kModel / "adapters" / "dora_r4_f32/"); }),
            "adapter 'dora_r4_f32' uses DoRA: the engine was built without --dora_plugin");
  Executor without(directory_ / "bare", ModelType::kDECODER_ONLY, small());
  EXPECT_THROW(without.registerAdapter(1, adapter_dir), Error);
  Request request({1, 2}, 2);
  request.setLoraConfig(tensorsOf(adapter_dir, 7));
  EXPECT_THAT(answer(without, request).getErrorMsg(), HasSubstr("built without --lora_plugin"));
  EXPECT_FALSE(answer(without, Request({1, 2}, 2)).hasError());
}

}  // namespace
}  // namespace chorus::executor
