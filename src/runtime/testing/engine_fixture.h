// The public Executor over a real engine: the golden model "plain", built with and without LoRA.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>

#include "chorus/executor.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "engine/engine.h"
#include "lora/peft_reader.h"
#include "support/test_paths.h"

namespace chorus::executor {

class EngineFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "chorus_executor_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    convertModel(kModel, directory_ / "checkpoint", {.dtype = DType::kFloat32, .workers = 1});
    BuildConfig config;
    config.max_batch_size = 4;
    config.max_num_tokens = 64;
    config.max_seq_len = 128;
    config.max_input_len = 100;
    config.tokens_per_block = 16;
    buildEngine(directory_ / "checkpoint", directory_ / "bare", config, 1);
    config.lora_plugin = true;
    buildEngine(directory_ / "checkpoint", directory_ / "lora", config, 1);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  static ExecutorConfig small() {
    ExecutorConfig config;
    config.setNumThreads(1);
    config.getKvCacheConfigRef().setMaxTokens(512);
    PeftCacheConfig adapters;
    adapters.setHostCacheSize(std::size_t{2} << 20);
    config.setPeftCacheConfig(adapters);
    return config;
  }
  static Response answer(Executor& executor, const Request& request) {
    return executor.awaitResponses(executor.enqueueRequest(request), std::chrono::seconds(60)).at(0);
  }

  // The directory's adapter as a client would send it: B times the scale, rows padded to more than the longest.
  static LoraConfig tensorsOf(const std::filesystem::path& adapter_dir, IdType task_id) {
    const auto engine = Engine::load(directory_ / "lora");
    const auto table = engine->architecture().weightTable(engine->config());
    const Adapter adapter = readPeftAdapter(adapter_dir, "adapter", {engine->config(), table, 64});
    std::int64_t longest = 0;
    for (const auto& module : adapter.modules) longest = std::max(longest, module.rank * (module.in + module.out));
    const auto rows = static_cast<std::int64_t>(adapter.modules.size());
    Tensor weights = Tensor::cpu(DataType::kFP32, {rows, longest + 3}),
           config = Tensor::cpu(DataType::kINT32, {rows, 3});
    auto* row = static_cast<float*>(weights.getData());
    auto* key = static_cast<std::int32_t*>(config.getData());
    for (const auto& module : adapter.modules) {
      const auto a = static_cast<std::size_t>(module.rank * module.in),
                 b = static_cast<std::size_t>(module.out * module.rank);
      for (std::size_t i = 0; i < a; ++i) row[i] = loadAsFloat(module.a, module.dtype, i);
      for (std::size_t i = 0; i < b; ++i) row[a + i] = module.scale * loadAsFloat(module.b, module.dtype, i);
      const std::int32_t values[] = {module.module_id, module.layer, static_cast<std::int32_t>(module.rank)};
      std::memcpy(key, values, sizeof(values));
      row += longest + 3;
      key += 3;
    }
    return LoraConfig(task_id, weights, config);
  }

  inline static const std::filesystem::path kModel = test::sourceDir() / "tests/goldens/llama/plain";
  inline static std::filesystem::path directory_;
};

}  // namespace chorus::executor
