// Bad input on the command line: exit status 2, one line on standard error that names what is wrong, and no files left
// behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "command.h"
#include "golden_case.h"
#include "safetensors_edit.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BadInput : public testing::Test {
 protected:
  // A private copy of a golden model, for a test to damage.
  fs::path copyModel(const std::string& name = "plain") {
    const fs::path model = dir_.path() / "model";
    fs::copy(loadGolden(name, DType::kFloat32).directory, model, fs::copy_options::recursive);
    return model;
  }
  static void editJson(const fs::path& file, const std::function<void(Json& json)>& edit) {
    Json json = readJsonFile(file);
    edit(json);
    writeFileAtomically(file, json.dump());
  }

  // Runs the program and expects one error line that contains all of `parts`.
  static CommandResult refuses(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const CommandResult result = runChorus(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_THAT(result.errors, testing::EndsWith("\n"));
    for (const std::string& part : parts) EXPECT_THAT(result.errors, HasSubstr(part));
    return result;
  }
  // Like refuses(), for a command that writes a directory: neither the directory nor a sibling may be left.
  void leavesNothing(std::vector<std::string> arguments, const std::vector<std::string>& parts) {
    const fs::path parent = dir_.path() / "outputs";
    fs::create_directory(parent);
    arguments.insert(arguments.end(), {"--output_dir", parent / "output"});
    refuses(arguments, parts);
    EXPECT_TRUE(fs::is_empty(parent)) << fs::directory_iterator(parent)->path();
  }
  void convertRefuses(const fs::path& model, const std::vector<std::string>& parts) {
    leavesNothing({"convert", "--model_dir", model, "--dtype", "float32"}, parts);
  }

  // Arguments of `chorus run` over an engine, with one prompt per line.
  std::vector<std::string> runArguments(const fs::path& engine, const std::string& prompts) {
    const fs::path file = dir_.path() / "prompts.csv";
    std::ofstream(file) << prompts;
    return {"run",
            "--engine_dir",
            engine,
            "--input_file",
            file,
            "--max_output_len",
            "4",
            "--end_id",
            "-1",
            "--output_npy",
            dir_.path() / "tokens.npy"};
  }
  fs::path plainEngine(const BuildConfig& config = testBuildConfig()) {
    return testEngine(loadGolden("plain", DType::kFloat32).directory, DType::kFloat32, config);
  }
  std::vector<std::string> runWithAdapter(const fs::path& engine, const fs::path& adapter) {
    auto arguments = runArguments(engine, "1,2,3\n");
    arguments.insert(arguments.end(), {"--lora_dir", adapter, "--lora_task_uids", "0"});
    return arguments;
  }

  const TempDir dir_;
};

// Shows that the input is served before the tests below damage it.
TEST_F(BadInput, GoodInputIsServed) {
  const fs::path checkpoint = dir_.path() / "checkpoint", engine = dir_.path() / "engine";
  const fs::path model = copyModel();
  const auto convert = runChorus({"convert", "--model_dir", model, "--dtype", "float32", "--output_dir", checkpoint});
  ASSERT_EQ(convert.status, 0) << convert.errors;
  const auto build = runChorus({"build", "--checkpoint_dir", checkpoint, "--output_dir", engine, "--lora_plugin",
                                "enable", "--dora_plugin", "enable"});
  ASSERT_EQ(build.status, 0) << build.errors;
  const auto run = runChorus(runWithAdapter(engine, model / "adapters/dora_r4_f32"));
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_TRUE(fs::exists(dir_.path() / "tokens.npy"));
}

TEST_F(BadInput, TruncatedSafetensors) {
  const fs::path model = copyModel();
  truncateFile(model / "model.safetensors", 0.7);
  convertRefuses(model, {"model.safetensors"});
}

TEST_F(BadInput, TruncatedInsideTheHeader) {
  const fs::path model = copyModel();
  truncateFile(model / "model.safetensors", 0.001);
  convertRefuses(model, {"model.safetensors"});
}

TEST_F(BadInput, OffsetsBeyondTheFile) {
  const fs::path model = copyModel();
  editHeader(model / "model.safetensors", [](OrderedJson& header) {
    header["model.norm.weight"]["data_offsets"] = {uint64_t{1} << 40, (uint64_t{1} << 40) + 84 * 4};
  });
  convertRefuses(model, {"model.safetensors", "model.norm.weight"});
}

TEST_F(BadInput, ShapeThatOverflows) {
  const fs::path model = copyModel();
  editHeader(model / "model.safetensors",
             [](OrderedJson& header) { header["model.norm.weight"]["shape"] = {int64_t{1} << 32, int64_t{1} << 32}; });
  convertRefuses(model, {"model.safetensors", "model.norm.weight"});
}

TEST_F(BadInput, OffsetsThatDisagreeWithTheShape) {
  const fs::path model = copyModel();
  editHeader(model / "model.safetensors", [](OrderedJson& header) { header["model.norm.weight"]["shape"] = {83}; });
  convertRefuses(model, {"model.safetensors", "model.norm.weight"});
}

TEST_F(BadInput, TensorOfAnotherShapeThanTheConfigSays) {
  const fs::path model = copyModel();
  editJson(model / "config.json", [](Json& json) { json["intermediate_size"] = 152; });
  convertRefuses(model, {"model.layers.0.mlp", "152", "148"});
}

TEST_F(BadInput, MissingTensor) {
  const fs::path model = copyModel();
  dropTensor(model / "model.safetensors", "model.layers.1.mlp.up_proj.weight");
  convertRefuses(model, {"model.layers.1.mlp.up_proj.weight"});
}

TEST_F(BadInput, UnexpectedTensor) {
  const fs::path model = copyModel();
  editJson(model / "config.json", [](Json& json) { json["num_hidden_layers"] = 3; });
  convertRefuses(model, {"model.layers.3."});
}

TEST_F(BadInput, MissingShard) {
  const fs::path model = copyModel("rope_linear");
  fs::remove(model / "model-00002-of-00002.safetensors");
  convertRefuses(model, {"model-00002-of-00002.safetensors"});
}

TEST_F(BadInput, UnknownArchitecture) {
  const fs::path model = copyModel();
  editJson(model / "config.json", [](Json& json) { json["architectures"] = {"GiraffeForCausalLM"}; });
  convertRefuses(model, {"GiraffeForCausalLM"});
}

TEST_F(BadInput, ConfigIsNoJson) {
  const fs::path model = copyModel();
  writeFileAtomically(model / "config.json", "{\"architectures\": [\"LlamaForCausalLM\"");
  convertRefuses(model, {"config.json"});
}

TEST_F(BadInput, RopeScalingOfAnotherKind) {
  const fs::path model = copyModel();
  editJson(model / "config.json", [](Json& json) { json["rope_scaling"] = {{"type", "spiral"}, {"factor", 2.0}}; });
  convertRefuses(model, {"spiral"});
}

TEST_F(BadInput, NoSuchModelDirectory) { convertRefuses(dir_.path() / "nowhere", {"nowhere"}); }

TEST_F(BadInput, UnknownDtype) {
  leavesNothing({"convert", "--model_dir", copyModel(), "--dtype", "float17"}, {"float17"});
}

TEST_F(BadInput, UnknownFlags) {
  leavesNothing({"convert", "--model_dir", copyModel(), "--quantum"}, {"--quantum"});
  leavesNothing({"build", "--checkpoint_dir", dir_.path(), "--quantum"}, {"--quantum"});
  refuses({"run", "--engine_dir", dir_.path(), "--max_output_len", "4", "--quantum"}, {"--quantum"});
  refuses({"juggle"}, {"juggle"});
}

TEST_F(BadInput, OutputWithoutAName) {
  refuses({"convert", "--model_dir", copyModel(), "--output_dir", ""}, {"the output directory has no name"});
}

TEST_F(BadInput, AnswersThatStandardOutputCannotTake) {
  const CommandResult result = runChorus(runArguments(plainEngine(), "1,2,3\n"), "/dev/full");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, "chorus: error: standard output: cannot write: No space left on device\n");
}

TEST_F(BadInput, AdaptersOfAnotherSource) {
  auto arguments = runWithAdapter(plainEngine(), dir_.path());
  arguments.insert(arguments.end(), {"--lora_ckpt_source", "other"});
  refuses(arguments, {"--lora_ckpt_source other: use hf or nemo"});
}

TEST_F(BadInput, TruncatedCheckpoint) {
  const fs::path checkpoint = dir_.path() / "checkpoint";
  ASSERT_EQ(runChorus({"convert", "--model_dir", copyModel(), "--output_dir", checkpoint}).status, 0);
  truncateFile(checkpoint / "rank0.safetensors", 0.7);
  leavesNothing({"build", "--checkpoint_dir", checkpoint}, {"rank0.safetensors"});
}

TEST_F(BadInput, TruncatedEngine) {
  const fs::path engine = dir_.path() / "engine";
  fs::copy(plainEngine(), engine);
  truncateFile(engine / "rank0.engine", 0.7);
  refuses(runArguments(engine, "1,2,3\n"), {"rank0.engine"});
  EXPECT_FALSE(fs::exists(dir_.path() / "tokens.npy"));
}

TEST_F(BadInput, AdapterOfAnotherShape) {
  const GoldenCase other = loadGolden("tied_bias", DType::kFloat32);
  refuses(runWithAdapter(plainEngine(), other.directory / "adapters/all_r8_f32"),
          {"all_r8_f32", "mlp.down_proj", "[8, 100]", "[8, 148]"});
}

TEST_F(BadInput, TruncatedAdapter) {
  const fs::path adapter = copyModel() / "adapters/qv_r3_f32";
  truncateFile(adapter / "adapter_model.safetensors", 0.7);
  refuses(runWithAdapter(plainEngine(), adapter), {"adapter_model.safetensors"});
}

TEST_F(BadInput, AdapterWithHalfAModule) {
  const fs::path adapter = copyModel() / "adapters/qv_r3_f32";
  dropTensor(adapter / "adapter_model.safetensors", "base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight");
  refuses(runWithAdapter(plainEngine(), adapter), {"layers.2.self_attn.q_proj"});
}

TEST_F(BadInput, EngineWithoutPlugins) {
  const fs::path adapters = loadGolden("plain", DType::kFloat32).directory / "adapters";
  BuildConfig config = testBuildConfig();
  config.dora_plugin = false;
  refuses(runWithAdapter(plainEngine(config), adapters / "dora_r4_f32"), {"--dora_plugin"});
  config.lora_plugin = false;
  refuses(runWithAdapter(plainEngine(config), adapters / "qv_r3_f32"), {"--lora_plugin"});
}

TEST_F(BadInput, AdapterOfTooLargeARank) {
  BuildConfig config = testBuildConfig();
  config.max_lora_rank = 8;
  refuses(runWithAdapter(plainEngine(config),
                         loadGolden("plain", DType::kFloat32).directory / "adapters/mlp_rslora_r16_f16"),
          {"16", "8"});
}

TEST_F(BadInput, PromptOverTheLimitBesideAGoodOne) {
  BuildConfig config = testBuildConfig();
  config.max_input_len = 20;
  std::string prompt = "1";
  for (int i = 1; i < 21; ++i) prompt += ",1";
  const CommandResult result = refuses(runArguments(plainEngine(config), prompt + "\n1,2,3\n"), {"21", "20"});
  const CommandResult good = runChorus(runArguments(plainEngine(config), "1,2,3\n"));
  ASSERT_EQ(good.status, 0) << good.errors;
  const std::string answer = good.out.substr(good.out.find(':'), good.out.find('\n') - good.out.find(':'));
  EXPECT_THAT(result.out, HasSubstr(answer));
}

TEST_F(BadInput, TokenOutsideTheVocabulary) { refuses(runArguments(plainEngine(), "1,211,3\n"), {"211"}); }

TEST_F(BadInput, PromptThatIsNoNumber) {
  refuses(runArguments(plainEngine(), "1,2\n1,two,3\n"), {"prompts.csv", "line 2"});
}

}  // namespace
}  // namespace chorus::test
