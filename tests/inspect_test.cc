// `chorus inspect`: its report on valid things, and its one error line for each invalid one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "convert/convert_model.h"
#include "engine/adapter_values.h"
#include "engine/rank_group.h"
#include "golden_case.h"
#include "safetensors_edit.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Inspect : public testing::Test {
 protected:
  // The facts of the --json report on a valid thing.
  static Json facts(std::vector<std::string> arguments, const std::string& kind) {
    arguments.insert(arguments.begin(), "inspect");
    const CommandResult table = runChorus(arguments);
    EXPECT_EQ(table.status, 0) << table.errors;
    EXPECT_EQ(table.errors, "");
    EXPECT_THAT(table.out, HasSubstr(": " + kind + "\n"));
    EXPECT_THAT(table.out, HasSubstr("whole"));
    arguments.push_back("--json");
    const CommandResult result = runChorus(arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
    const Json report = parseJson(result.out, "report");
    EXPECT_EQ(report.at("kind"), kind);
    EXPECT_EQ(report.at("whole"), true);
    EXPECT_TRUE(report.at("problem").is_null());
    return report.at("facts");
  }

  static void refuses(std::vector<std::string> arguments, const std::vector<std::string>& parts) {
    arguments.insert(arguments.begin(), "inspect");
    const CommandResult result = runChorus(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    for (const std::string& part : parts) EXPECT_THAT(result.errors, HasSubstr(part));
    arguments.push_back("--json");
    const CommandResult json = runChorus(arguments);
    EXPECT_EQ(json.status, 2);
    const Json report = parseJson(json.out, "report");
    EXPECT_EQ(report.at("whole"), false);
    for (const std::string& part : parts) EXPECT_THAT(report.at("problem").get<std::string>(), HasSubstr(part));
  }

  fs::path copyModel(const std::string& name) {
    const fs::path model = dir_.path() / "model";
    fs::copy(loadGolden(name, DType::kFloat32).directory, model, fs::copy_options::recursive);
    return model;
  }
  static void editJson(const fs::path& file, const std::function<void(Json& json)>& edit) {
    Json json = readJsonFile(file);
    edit(json);
    writeFileAtomically(file, json.dump());
  }

  const GoldenCase plain_ = loadGolden("plain", DType::kFloat32);
  const TempDir dir_;
};

TEST_F(Inspect, ModelCheckpointAndEngineAgree) {
  const fs::path checkpoint = dir_.path() / "checkpoint";
  convertModel(plain_.directory, checkpoint, {.dtype = DType::kFloat32, .workers = 1});
  const fs::path engine_dir = testEngine(plain_.directory, DType::kFloat32);
  const Json model = facts({plain_.directory}, "Hugging Face model");
  EXPECT_EQ(model.at("architecture"), "LlamaForCausalLM");
  EXPECT_EQ(model.at("layers"), 4);
  EXPECT_EQ(model.at("vocabulary"), 211);

  // The parameter count agrees with the bytes of the model's file.
  const auto engine = Engine::load(engine_dir);
  EXPECT_EQ(model.at("parameters").get<uint64_t>() * 4,
            facts({plain_.directory / "model.safetensors"}, "safetensors file").at("bytes of tensors"));
  EXPECT_EQ(model.at("KV cache per token").get<int64_t>(),
            Session::kvCache(engine->config(), engine->buildConfig()).token_bytes);

  for (const Json& other : {facts({checkpoint}, "TensorRT-LLM checkpoint"), facts({engine_dir}, "engine")}) {
    for (const char* same : {"architecture", "layers", "parameters", "weights in memory", "KV cache per token"}) {
      EXPECT_EQ(other.at(same), model.at(same)) << same;
    }
  }
  uint64_t packed = 0;
  const Json file = facts({engine_dir / "rank0.engine"}, "engine file");
  packed = file.at("bytes of tensors");
  EXPECT_EQ(packed, model.at("weights in memory"));
  EXPECT_EQ(file.at("tensors").size(), 4u * 6 + 3);
}

TEST_F(Inspect, AModelThatCannotBeConvertedIsNamed) {
  const fs::path weights = dir_.path() / "nemo/model_weights";
  fs::create_directories(weights);
  writeFileAtomically(weights / "__0_0.distcp", "");
  refuses({dir_.path() / "nemo"}, {"distributed PyTorch checkpoint (torch_dist, *.distcp), which is not supported"});
  fs::create_directories(dir_.path() / "empty");
  refuses({dir_.path() / "empty"}, {"holds no model that is known (", "Hugging Face model"});
}

TEST_F(Inspect, AnAdapterAloneAndOnItsBase) {
  const fs::path adapter = plain_.directory / "adapters/pattern_f32";
  EXPECT_EQ(facts({adapter}, "PEFT adapter").at("r"), 4);
  const fs::path engine_dir = testEngine(plain_.directory, DType::kFloat32);
  for (const fs::path& base : {plain_.directory, engine_dir}) {
    const Json on_base = facts({adapter, "--base", base}, "PEFT adapter");
    EXPECT_EQ(on_base.at("rank"), Json({4, 5, 11}));
    EXPECT_EQ(on_base.at("modules"),
              Json({"mlp.down_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj"}));
    // The report agrees with what an engine really takes for the adapter.
    const auto engine = Engine::load(engine_dir);
    const RankGroup ranks({engine}, {.threads = 1}, {.kv_blocks = 1});
    EXPECT_EQ(on_base.at("in memory"), ranks.prepareAdapter(readTestAdapter(adapter, *engine))->bytes);
  }
}

TEST_F(Inspect, ConvertedTensorsAloneAndOnTheirBase) {
  const fs::path tensors = dir_.path() / "tensors";
  ASSERT_EQ(runChorus({"lora-convert", "-i", plain_.directory / "adapters/pattern_f32", "-o", tensors}).status, 0);
  const Json alone = facts({tensors}, "LoRA tensors");
  EXPECT_EQ(alone.at("storage type"), "float16");
  EXPECT_EQ(alone.at("modules"), Json({"attn_dense", "attn_k", "attn_q", "mlp_4h_to_h"}));
  EXPECT_EQ(alone.at("rank"), Json({4, 5, 11}));
  const Json on_base = facts({tensors, "--base", plain_.directory}, "LoRA tensors");
  EXPECT_EQ(
      on_base.at("in memory"),
      facts({plain_.directory / "adapters/pattern_f32", "--base", plain_.directory}, "PEFT adapter").at("in memory"));
  refuses({tensors, "--base", loadGolden("head_dim", DType::kFloat32).directory}, {"lora_weights has to few values"});
  truncateFile(tensors / "model.lora_weights.npy", 0.9);
  refuses({tensors}, {"model.lora_weights.npy"});
  fs::copy_file(tensors / "model.lora_config.npy", tensors / "model.lora_weights.npy",
                fs::copy_options::overwrite_existing);
  refuses({tensors, "--base", plain_.directory}, {"Expected lora weights to be the same data type as base model"});
  fs::remove(tensors / "model.lora_config.npy");
  refuses({tensors}, {"model.lora_config.npy"});
}

TEST_F(Inspect, FilesThatAModelLacksAreNamed) {
  const fs::path model = copyModel("plain");
  dropTensor(model / "model.safetensors", "model.layers.2.mlp.up_proj.weight");
  refuses({model}, {"Required but not provided", "model.layers.2.mlp.up_proj.weight"});
  truncateFile(model / "model.safetensors", 0.9);
  refuses({model}, {"model.safetensors"});
}

TEST_F(Inspect, AMissingShardAndAnUnknownArchitecture) {
  const fs::path model = copyModel("rope_linear");
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().filename().string().starts_with("model-00002")) shard = entry.path();
  }
  fs::rename(shard, dir_.path() / "shard");
  refuses({model}, {shard.filename().string(), "missing"});
  fs::rename(dir_.path() / "shard", shard);
  editJson(model / "config.json", [](Json& json) { json["architectures"] = {"NobodyForCausalLM"}; });
  refuses({model}, {"NobodyForCausalLM", "LlamaForCausalLM"});
}

TEST_F(Inspect, EnginesThatAreNotWhole) {
  const fs::path engine = dir_.path() / "engine";
  fs::copy(testEngine(plain_.directory, DType::kFloat32), engine);
  editJson(engine / "config.json", [](Json& json) { json["pretrained_config"]["num_hidden_layers"] = 5; });
  refuses({engine}, {"rank0.engine", "transformer.layers.4"});
  truncateFile(engine / "rank0.engine", 0.9);
  refuses({engine}, {"rank0.engine"});
  fs::remove(engine / "rank0.engine");
  refuses({engine}, {"rank0.engine"});
}

// Costs take time for every rank of the config, so they are not computed before all ranks' files were read.
TEST_F(Inspect, RanksComeBeforeCosts) {
  const fs::path engine = dir_.path() / "engine", checkpoint = dir_.path() / "checkpoint";
  fs::copy(testEngine(plain_.directory, DType::kFloat32, testBuildConfig(), {.tp_size = 2}), engine);
  convertModel(plain_.directory, checkpoint, {.dtype = DType::kFloat32, .tp_size = 2, .workers = 1});
  fs::remove(engine / "rank1.engine");
  dropTensor(checkpoint / "rank1.safetensors", "transformer.ln_f.weight");
  refuses({engine}, {"rank1.engine"});
  refuses({checkpoint}, {"rank1.safetensors", "transformer.ln_f.weight"});
  for (const fs::path& path : {engine, checkpoint}) {
    const Json report = parseJson(runChorus({"inspect", path, "--json"}).out, "report");
    EXPECT_TRUE(report.at("facts").contains("layers"));
    EXPECT_FALSE(report.at("facts").contains("parameters"));
  }
}

TEST_F(Inspect, AdaptersThatWouldNotServe) {
  BuildConfig config = testBuildConfig();
  config.max_lora_rank = 8;
  config.lora_target_modules = {"attn_q", "attn_v"};
  const fs::path few = testEngine(plain_.directory, DType::kFloat32, config);
  const fs::path adapters = plain_.directory / "adapters";
  EXPECT_EQ(facts({adapters / "qv_r3_f32", "--base", few}, "PEFT adapter").at("rank"), Json({3}));
  refuses({adapters / "mlp_rslora_r16_f16", "--base", few}, {"rank 16", "--max_lora_rank"});
  refuses({adapters / "all_r8_bf16", "--base", few}, {"not enabled for this model", "--lora_target_modules"});
  config = testBuildConfig();
  config.dora_plugin = false;
  refuses({adapters / "dora_r4_f32", "--base", testEngine(plain_.directory, DType::kFloat32, config)},
          {"--dora_plugin"});
  config.lora_plugin = false;
  refuses({adapters / "qv_r3_f32", "--base", testEngine(plain_.directory, DType::kFloat32, config)}, {"--lora_plugin"});
  refuses({adapters / "qv_r3_f32", "--base", loadGolden("tied_bias", DType::kFloat32).directory}, {"of another model"});
  refuses({adapters / "qv_r3_f32", "--base", adapters / "qv_r3_f32"}, {"--base", "not a model"});
  refuses({plain_.directory, "--base", few}, {"--base", "not an adapter"});
}

// Integers have float32 scales, so they hold values that a 16-bit float cannot.
TEST_F(Inspect, TheStorageOfAdaptersDecidesAboutMemoryAndRange) {
  const fs::path adapter = dir_.path() / "adapter", weights = adapter / "adapter_model.safetensors";
  fs::copy(plain_.directory / "adapters/qv_r3_f32", adapter);
  const fs::path engine_dir = testEngine(plain_.directory, DType::kFloat16);
  const auto engine = Engine::load(engine_dir);
  const RankGroup ranks({engine}, {.threads = 1}, {.kv_blocks = 1, .lora_format = int8LoraFormat()});
  const Json int8 = facts({adapter, "--base", engine_dir, "--lora_storage", "int8"}, "PEFT adapter");
  EXPECT_EQ(int8.at("in memory"), ranks.prepareAdapter(readTestAdapter(adapter, *engine))->bytes);
  EXPECT_LT(int8.at("in memory"), facts({adapter, "--base", engine_dir}, "PEFT adapter").at("in memory"));

  std::string bytes = readFile(weights, 1 << 20);
  const float large = 1e6F;
  std::memcpy(bytes.data() + bytes.size() - sizeof large, &large, sizeof large);
  writeFileAtomically(weights, bytes);
  refuses({adapter, "--base", engine_dir}, {"beyond the range of float16, the model's type"});
  facts({adapter, "--base", engine_dir, "--lora_storage", "int8"}, "PEFT adapter");

  const CommandResult alone = runChorus({"inspect", adapter, "--lora_storage", "int8"});
  EXPECT_NE(alone.status, 0);
  EXPECT_THAT(alone.errors, HasSubstr("--lora_storage requires --base"));
}

TEST_F(Inspect, OtherFilesAndDirectories) {
  const fs::path demo = test::sourceDir() / "examples/demo/base";
  EXPECT_EQ(facts({demo}, "Hugging Face model").at("tokenizer"), 1509);
  fs::create_directory(dir_.path() / "tokenizer");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::copy(demo / name, dir_.path() / "tokenizer");
  EXPECT_EQ(facts({dir_.path() / "tokenizer"}, "tokenizer").at("tokenizer"), 1509);
  writeFileAtomically(dir_.path() / "tokenizer/tokenizer.json", "{}");
  refuses({dir_.path() / "tokenizer"}, {"tokenizer.json"});

  refuses({dir_.path() / "nothing"}, {"nothing", "no such"});
  refuses({dir_.path()}, {"holds no model that is known (", "config.json"});
  refuses({test::sourceDir() / "examples/demo/adapters"}, {"holds adapters (german, json, roman, "});
  writeFileAtomically(dir_.path() / "model.gguf", "GGUF");
  refuses({dir_.path() / "model.gguf"}, {"a GGUF model, which is not supported; "});
  fs::remove(dir_.path() / "model.gguf");
  for (const char* name : {"a.safetensors", "a.npy", "a.engine", "a.bin", "a.txt"}) {
    writeFileAtomically(dir_.path() / name, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
    refuses({dir_.path() / name}, {name});
  }
}

}  // namespace
}  // namespace chorus::test
