// The adapters of goldens/adapter_layouts/, which several tools' layouts hold, are read with the bits of PEFT's layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "command.h"
#include "convert/lora_convert.h"
#include "formats/safetensors.h"
#include "golden_case.h"
#include "lora/adapter_files.h"
#include "models/architecture.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

const fs::path kLayouts = sourceDir() / "tests/goldens/adapter_layouts";

class AdapterLayouts : public testing::TestWithParam<std::string> {
 protected:
  AdapterLayouts() {
    const Json json = readJsonFile(kLayouts / "config.json");
    const Architecture& architecture = findArchitecture("LlamaForCausalLM");
    config_ = architecture.configFromHuggingFace(json, "config.json");
    table_ = architecture.weightTable(config_);
  }
  fs::path directory(const std::string& layout) const { return kLayouts / GetParam() / layout; }
  Adapter read(const std::string& layout) const { return readAdapter(directory(layout), layout, {config_, table_}); }
  std::vector<std::string> otherLayouts() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(kLayouts / GetParam())) {
      if (entry.path().filename() != "peft") found.push_back(entry.path().filename());
    }
    EXPECT_GE(found.size(), 7u);
    return found;
  }

  ModelConfig config_;
  WeightTable table_;
};

TEST_P(AdapterLayouts, AreReadWithTheSameBits) {
  const Adapter peft = read("peft");
  EXPECT_EQ(peft.uses_dora, GetParam() == "dora");
  ASSERT_EQ(peft.modules.size(), 4u);
  for (const std::string& layout : otherLayouts()) {
    SCOPED_TRACE(layout);
    const Adapter adapter = read(layout);
    EXPECT_EQ(adapter.without_effect, "");
    EXPECT_TRUE(adapter.left_out.empty());
    ASSERT_EQ(adapter.modules.size(), peft.modules.size());
    for (size_t i = 0; i < peft.modules.size(); ++i) {
      const AdapterModule &a = peft.modules[i], &b = adapter.modules[i];
      SCOPED_TRACE(a.module_name);
      EXPECT_EQ(std::tie(a.module_id, a.layer, a.rank, a.in, a.out, a.dtype, a.scale, a.magnitude),
                std::tie(b.module_id, b.layer, b.rank, b.in, b.out, b.dtype, b.scale, b.magnitude));
      EXPECT_TRUE(std::equal(a.a, a.a + a.aBytes(), b.a));
      EXPECT_TRUE(std::equal(a.b, a.b + a.bBytes(), b.b));
    }
  }
}

TEST_P(AdapterLayouts, AreConvertedToTheSameTensors) {
  const TempDir out;
  const auto converted = [&](const std::string& layout) {
    convertLora(directory(layout), out.path() / layout, DType::kFloat32);
    return readFile(out.path() / layout / kLoraConfigFile, 1 << 20) +
           readFile(out.path() / layout / kLoraWeightsFile, 1 << 20);
  };
  const std::string peft = converted("peft");
  for (const std::string& layout : otherLayouts()) {
    SCOPED_TRACE(layout);
    if (layout.starts_with("torchtune")) {
      const std::string line = errorOf([&] { converted(layout); });
      EXPECT_NE(line.find("has torchtune's name"), std::string::npos) << line;
    } else {
      EXPECT_EQ(converted(layout), peft);
    }
  }
}

// An adapter whose B matrices are zero, and one that is beneath a checkpoint-N.
TEST(AdapterWithoutEffect, IsReportedByRunAndInspect) {
  const GoldenCase golden = loadGolden("plain", DType::kFloat32);
  const TempDir dir;
  const fs::path trained = golden.directory / "adapters/qv_r3_f32", untrained = dir.path() / "untrained/checkpoint-7";
  fs::create_directories(untrained);
  fs::copy_file(trained / "adapter_config.json", untrained / "adapter_config.json");
  const Safetensors weights = Safetensors::open(trained / "adapter_model.safetensors");
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const std::string& name : weights.names()) {
    declarations.push_back({name, weights.find(name)->dtype, weights.find(name)->shape});
  }
  SafetensorsWriter writer(untrained / "adapter_model.safetensors", declarations);
  for (const std::string& name : weights.names()) {
    const auto bytes = weights.find(name)->bytes;
    const std::vector<std::byte> zeros(bytes.size());
    writer.write(name, 0, name.find("lora_B") != std::string::npos ? std::span<const std::byte>(zeros) : bytes);
  }
  writer.finish();

  const fs::path prompts = dir.path() / "prompts.csv";
  writeFileAtomically(prompts, "1,2,3\n");
  for (const fs::path& adapter : {dir.path() / "untrained", trained}) {
    SCOPED_TRACE(adapter.string());
    const CommandResult run =
        runChorus({"run", "--engine_dir", testEngine(golden.directory, DType::kFloat32).string(), "--input_file",
                   prompts.string(), "--max_output_len", "2", "--lora_dir", adapter.string(), "--lora_task_uids", "0"});
    EXPECT_EQ(run.status, 0) << run.errors;
    const std::string warning = "adapter 'untrained' changes nothing: the product of every lora_B and lora_A is zero";
    EXPECT_EQ(run.errors.find(warning) != std::string::npos, adapter != trained) << run.errors;
    for (const bool with_base : {false, true}) {
      std::vector<std::string> arguments = {"inspect", adapter.string()};
      if (with_base) arguments.insert(arguments.end(), {"--base", golden.directory.string()});
      const CommandResult inspected = runChorus(arguments);
      EXPECT_EQ(inspected.status, 0) << inspected.errors;
      EXPECT_EQ(inspected.out.find("none: ") != std::string::npos, adapter != trained) << inspected.out;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterLayouts, testing::Values("lora", "dora"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace chorus::test
