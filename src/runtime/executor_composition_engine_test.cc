// Compositions over a real engine: they equal the sum of their members, alone and in a batch with other requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "chorus/executor.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "engine/engine.h"
#include "lora/peft_reader.h"
#include "support/test_paths.h"

namespace chorus::executor {
namespace {

struct Named {
  const char* adapter;
  float weight;
};

class CompositionEngineTest : public ::testing::TestWithParam<int32_t> {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "chorus_composition_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    BuildConfig config;
    config.max_batch_size = 8;
    config.max_num_tokens = 64;
    config.max_seq_len = 64;
    config.max_input_len = 40;
    config.tokens_per_block = 16;
    config.lora_plugin = config.dora_plugin = true;
    for (const int32_t tp_size : {1, 2}) {
      const auto checkpoint = directory_ / ("checkpoint" + std::to_string(tp_size));
      convertModel(kModel, checkpoint, {.dtype = DType::kFloat32, .tp_size = tp_size, .workers = 1});
      buildEngine(checkpoint, engineDir(tp_size), config, 1);
    }
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  CompositionEngineTest() {
    ExecutorConfig config;
    config.setNumThreads(1);
    config.getKvCacheConfigRef().setMaxTokens(1024);
    executor_ = std::make_unique<Executor>(engineDir(GetParam()), ModelType::kDECODER_ONLY, config);
    for (size_t i = 0; i < std::size(kAdapters); ++i) executor_->registerAdapter(i, kModel / "adapters" / kAdapters[i]);
  }

  static std::filesystem::path engineDir(int32_t tp_size) { return directory_ / ("engine" + std::to_string(tp_size)); }
  static std::vector<WeightedLora> termsOf(const std::vector<Named>& named) {
    std::vector<WeightedLora> terms;
    for (const auto& [adapter, weight] : named) {
      const auto at = std::find_if(std::begin(kAdapters), std::end(kAdapters),
                                   [name = adapter](const char* other) { return std::strcmp(name, other) == 0; });
      terms.push_back({static_cast<IdType>(at - std::begin(kAdapters)), weight});
    }
    return terms;
  }
  static Request request(int32_t seed) {
    OutputConfig output;
    output.returnGenerationLogits = true;
    output.excludeInputFromOutput = true;
    return Request({5 + seed, 17, 40, 3, 99}, 8, false, SamplingConfig(), output);
  }
  static Request composed(const std::vector<Named>& named, int32_t seed = 0) {
    Request r = request(seed);
    r.setLoraComposition(termsOf(named));
    return r;
  }
  static Request with(LoraConfig lora, int32_t seed = 0) {
    Request r = request(seed);
    r.setLoraConfig(std::move(lora));
    return r;
  }

  Response await(IdType id) { return executor_->awaitResponses(id, std::chrono::seconds(60)).at(0); }
  std::vector<float> logits(IdType id) {
    const Response response = await(id);
    if (response.hasError()) {
      ADD_FAILURE() << response.getErrorMsg();
      return {};
    }
    const Tensor tensor = response.getResult().generationLogits.value();
    const auto* data = static_cast<const float*>(tensor.getData());
    return {data, data + tensor.getSize()};
  }
  std::vector<float> logits(const Request& r) { return logits(executor_->enqueueRequest(r)); }

  // The adapter that PEFT's combination type "cat" makes of the terms, as a client would send it: the A matrices
  // stacked, each scaled by scale x weight, and the B matrices side by side.
  static LoraConfig catOf(const std::vector<Named>& named, IdType task_id) {
    const auto engine = Engine::load(engineDir(GetParam()));
    const auto table = engine->architecture().weightTable(engine->config());
    struct Cat {
      int64_t rank = 0, in = 0, out = 0;
      std::vector<float> a;                // [rank, in]
      std::vector<std::vector<float>> bs;  // per term: [out, rank of the term]
    };
    std::map<std::pair<int32_t, int32_t>, Cat> modules;
    for (const auto& [name, weight] : named) {
      const Adapter adapter = readPeftAdapter(kModel / "adapters" / name, name, {engine->config(), table, 64});
      for (const auto& module : adapter.modules) {
        Cat& cat = modules[{module.module_id, module.layer}];
        cat.in = module.in;
        cat.out = module.out;
        cat.rank += module.rank;
        for (int64_t i = 0; i < module.rank * module.in; ++i)
          cat.a.push_back(weight * module.scale * loadAsFloat(module.a, module.dtype, static_cast<size_t>(i)));
        cat.bs.emplace_back();
        for (int64_t i = 0; i < module.out * module.rank; ++i)
          cat.bs.back().push_back(loadAsFloat(module.b, module.dtype, static_cast<size_t>(i)));
      }
    }
    int64_t longest = 0;
    for (const auto& [_, cat] : modules) longest = std::max(longest, cat.rank * (cat.in + cat.out));
    const auto rows = static_cast<int64_t>(modules.size());
    Tensor weights = Tensor::cpu(DataType::kFP32, {rows, longest}), config = Tensor::cpu(DataType::kINT32, {rows, 3});
    std::memset(weights.getData(), 0, weights.getSizeInBytes());
    auto* row = static_cast<float*>(weights.getData());
    auto* key = static_cast<int32_t*>(config.getData());
    for (const auto& [place, cat] : modules) {
      float* to = std::copy(cat.a.begin(), cat.a.end(), row);
      for (int64_t o = 0; o < cat.out; ++o) {
        for (const auto& b : cat.bs) {
          const int64_t rank = std::ssize(b) / cat.out;
          to = std::copy_n(b.begin() + o * rank, rank, to);
        }
      }
      const int32_t values[] = {place.first, place.second, static_cast<int32_t>(cat.rank)};
      std::memcpy(key, values, sizeof(values));
      row += longest;
      key += 3;
    }
    return LoraConfig(task_id, weights, config);
  }

  static void expectClose(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-4f * (1 + std::abs(b[i]))) << i;
  }

  inline static const std::filesystem::path kModel = test::sourceDir() / "tests/goldens/llama/plain";
  static constexpr const char* kAdapters[] = {"qv_r3_f32", "all_r8_bf16", "mlp_rslora_r16_f16", "pattern_f32",
                                              "dora_r4_f32"};
  inline static std::filesystem::path directory_;
  std::unique_ptr<Executor> executor_;
};

TEST_P(CompositionEngineTest, IsTheConcatenationOfItsMembers) {
  const std::vector<Named> compositions[] = {
      {{"qv_r3_f32", 0.7f}, {"all_r8_bf16", -0.4f}},
      {{"mlp_rslora_r16_f16", 1.0f}, {"pattern_f32", 0.5f}, {"all_r8_bf16", 0.25f}},
      {{"all_r8_bf16", 0.5f}, {"all_r8_bf16", 0.25f}},
      {{"all_r8_bf16", -0.5f}},
      {{"qv_r3_f32", 0.0f}, {"pattern_f32", 1.0f}},
  };
  const auto base = logits(request(0));
  IdType task_id = 100;
  for (const auto& composition : compositions) {
    SCOPED_TRACE(task_id);
    const auto got = logits(composed(composition));
    expectClose(got, logits(with(catOf(composition, task_id++))));
    EXPECT_NE(got, base);
  }
}

TEST_P(CompositionEngineTest, ASingleMemberOfWeightOneGivesTheAdaptersBits) {
  for (const char* name : {"qv_r3_f32", "all_r8_bf16"}) {
    const auto terms = termsOf({{name, 1.0f}});
    EXPECT_EQ(logits(composed({{name, 1.0f}})), logits(with(LoraConfig(terms[0].taskId)))) << name;
  }
  // A term of weight 0 adds nothing.
  EXPECT_EQ(logits(composed({{"qv_r3_f32", 1.0f}, {"all_r8_bf16", 0.0f}})), logits(composed({{"qv_r3_f32", 1.0f}})));
}

TEST_P(CompositionEngineTest, AnswersBesideOthersAreThoseAlone) {
  const std::vector<Request> requests = {
      composed({{"qv_r3_f32", 0.7f}, {"all_r8_bf16", -0.4f}}, 0),
      request(1),
      with(LoraConfig(1), 2),
      composed({{"qv_r3_f32", 0.7f}, {"all_r8_bf16", -0.4f}}, 3),
      composed({{"all_r8_bf16", -0.4f}, {"qv_r3_f32", 0.7f}}, 0),
      with(LoraConfig(4), 5),
      composed({{"mlp_rslora_r16_f16", 2.0f}, {"pattern_f32", -1.0f}, {"qv_r3_f32", 1.0f}}, 6),
      composed({{"pattern_f32", 0.5f}}, 7),
  };
  std::vector<std::vector<float>> alone;
  for (const auto& r : requests) alone.push_back(logits(r));
  const auto ids = executor_->enqueueRequests(requests);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(logits(ids[i]), alone[i]) << i;
  const auto steps = executor_->getLatestIterationStats();
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.numAdapters == 5; }));
}

TEST_P(CompositionEngineTest, WeightsBeyondTheNumbersAreTheClientsToChange) {
  const Request moderate = composed({{"all_r8_bf16", 0.5f}});
  const auto alone = logits(moderate);
  const auto ids = executor_->enqueueRequests({composed({{"all_r8_bf16", 3e38f}}), moderate});
  EXPECT_EQ(logits(ids[1]), alone);
  const Response refused = await(ids[0]);
  ASSERT_TRUE(refused.hasError());
  EXPECT_EQ(refused.getErrorCode(), ResponseErrorCode::kINVALID_ARGUMENT);
  EXPECT_THAT(refused.getErrorMsg(), ::testing::HasSubstr("use smaller weights"));
}

TEST_P(CompositionEngineTest, DoraMembersAreRefusedInOneLine) {
  for (const auto& named : {std::vector<Named>{{"qv_r3_f32", 1.0f}, {"dora_r4_f32", 1.0f}},
                            std::vector<Named>{{"dora_r4_f32", 0.5f}}, std::vector<Named>{{"dora_r4_f32", 1.0f}}}) {
    const Response response = await(executor_->enqueueRequest(composed(named)));
    ASSERT_TRUE(response.hasError());
    EXPECT_EQ(response.getErrorMsg(), "LoRA task 4 uses DoRA: it cannot be composed with others");
    EXPECT_EQ(response.getAdapterFault().value().taskId, 4u);
    EXPECT_EQ(response.getAdapterFault()->reason, "uses DoRA: it cannot be composed with others");
  }
  EXPECT_EQ(executor_->getAdapterCacheStats().host.pinnedAdapters, 0);
}

TEST_P(CompositionEngineTest, MembersThatAdaptParametersAreRefusedInOneLine) {
  namespace fs = std::filesystem;
  const fs::path adapter = directory_ / ("parameters" + std::to_string(GetParam()));
  fs::copy(kModel / "adapters" / "qv_r3_f32", adapter);
  const fs::path config_path = adapter / "adapter_config.json";
  Json config = readJsonFile(config_path);
  config["target_modules"] = Json::array();
  config["target_parameters"] = {"q_proj.weight", "v_proj.weight"};
  fs::permissions(config_path, fs::perms::owner_write, fs::perm_options::add);
  writeFileAtomically(config_path, config.dump());
  executor_->registerAdapter(50, adapter);
  EXPECT_EQ(logits(with(LoraConfig(50))), logits(with(LoraConfig(termsOf({{"qv_r3_f32", 1.0f}})[0].taskId))));
  for (const float weight : {1.0f, 0.5f}) {
    Request r = request(0);
    r.setLoraComposition({{50, weight}, {termsOf({{"all_r8_bf16", 1.0f}})[0].taskId, 1.0f}});
    const Response response = await(executor_->enqueueRequest(r));
    ASSERT_TRUE(response.hasError());
    EXPECT_EQ(response.getErrorMsg(),
              "LoRA task 50 adapts parameters by name (target_parameters): it cannot be composed with others");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CompositionEngineTest, ::testing::Values(1, 2),
                         [](const auto& info) { return "tp" + std::to_string(info.param); });

}  // namespace
}  // namespace chorus::executor
