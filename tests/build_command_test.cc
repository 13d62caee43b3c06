// `chorus build`: the checks of its flags, and its output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "golden_case.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BuildCommand : public testing::Test {
 protected:
  BuildCommand() {
    convertModel(golden_.directory, dir_.path() / "checkpoint", {.dtype = DType::kFloat32, .tp_size = 2, .workers = 1});
  }

  CommandResult build(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"build", "--checkpoint_dir", dir_.path() / "checkpoint", "--output_dir",
                                          engine_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runChorus(arguments);
  }
  // The one error line of a build that fails and leaves no files.
  std::string refusal(const std::vector<std::string>& more) {
    const CommandResult result = build(more);
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_FALSE(std::filesystem::exists(engine_));
    return result.errors;
  }

  const TempDir dir_;
  const std::filesystem::path engine_ = dir_.path() / "engine";
  const GoldenCase golden_ = loadGolden("plain", DType::kFloat32);
  const std::string adapter_ = golden_.directory / "adapters/all_r8_bf16";
};

TEST_F(BuildCommand, LoraDirIsOpenedAlsoBesideLoraTargetModules) {
  const std::vector<std::string> targets = {"--lora_plugin", "enable", "--lora_target_modules", "attn_q"};
  const auto with = [&](const std::string& adapter) {
    auto more = targets;
    more.insert(more.end(), {"--lora_dir", adapter});
    return more;
  };
  EXPECT_THAT(refusal(with("/nowhere/adapter")), HasSubstr("/nowhere/adapter"));
  // The adapter has modules other than attn_q, for which the engine would refuse it.
  EXPECT_THAT(refusal(with(adapter_)), AllOf(HasSubstr("all_r8_bf16"), HasSubstr("--lora_target_modules")));
  const CommandResult inferred = build({"--lora_plugin", "enable", "--lora_dir", adapter_});
  EXPECT_EQ(inferred.status, 0) << inferred.errors;
  const Json modules = readJsonFile(engine_ / "config.json")["build_config"]["lora_target_modules"];
  EXPECT_THAT(modules.dump(), HasSubstr("\"attn_q\",\"attn_k\",\"attn_v\",\"attn_dense\""));
}

TEST_F(BuildCommand, ModulesThatTheModelDoesNotHaveAreNamed) {
  EXPECT_THAT(
      refusal({"--lora_plugin", "enable", "--lora_target_modules", "attn_q", "moe_router", "juggle"}),
      HasSubstr("--lora_target_modules moe_router, juggle: LlamaForCausalLM has no such module; it has attn_qkv, "
                "attn_q, attn_k, attn_v, attn_dense, mlp_h_to_4h, mlp_4h_to_h, mlp_gate, mlp_gate_up"));
}

TEST_F(BuildCommand, ActivationsAreThoseOfTheFlagOrOfTheCheckpoint) {
  const auto algorithm = [&] {
    return readJsonFile(engine_ / "config.json")["pretrained_config"]["quantization"]["quant_algo"].get<std::string>();
  };
  EXPECT_THAT(refusal({"--activations", "int8"}), HasSubstr("--activations: the model is not quantised"));
  EXPECT_THAT(refusal({"--activations", "int4"}), HasSubstr("--activations"));
  for (const int32_t bits : {8, 4}) {
    convertModel(golden_.directory, dir_.path() / "checkpoint",
                 {.dtype = DType::kFloat32, .quantise = QuantiseOptions{.bits = bits}, .workers = 1});
    const std::string weights = bits == 8 ? "W8" : "W4";
    EXPECT_THAT(refusal({"--activations", "int8"}),
                HasSubstr("--activations: " + weights + "A8 is not supported in a float32 model"));
    if (bits == 4) {
      EXPECT_THAT(refusal({"--activations", "int8_per_token"}), HasSubstr("not supported with int4 weights"));
    }
    convertModel(golden_.directory, dir_.path() / "checkpoint",
                 {.dtype = DType::kBFloat16, .quantise = QuantiseOptions{.bits = bits}, .workers = 1});
    EXPECT_EQ(build({}).status, 0);
    EXPECT_EQ(algorithm(), weights + "A16");
    EXPECT_EQ(build({"--activations", "int8"}).status, 0);
    EXPECT_EQ(algorithm(), weights + "A8");
    EXPECT_THAT(runChorus({"inspect", engine_}).out, HasSubstr(weights + "A8, a scale for each output"));
    if (bits == 8) {
      EXPECT_EQ(build({"--activations", "int8_per_token"}).status, 0);
      EXPECT_EQ(algorithm(), "W8A8_PER_TOKEN");
    }
    std::filesystem::remove_all(engine_);
  }
}

TEST_F(BuildCommand, FlagsWithoutEffectSaySo) {
  const CommandResult result =
      build({"--context_fmha", "disable", "--disable_xqa", "--multi_block_mode", "enable", "--gemm_plugin", "float16"});
  EXPECT_EQ(result.status, 0) << result.errors;
  for (const char* line :
       {"--context_fmha disable: recorded, no effect yet\n", "--disable_xqa: recorded, no effect yet\n",
        "--multi_block_mode enable: recorded, no effect yet\n"}) {
    EXPECT_THAT(result.errors, HasSubstr(line));
  }
  EXPECT_THAT(result.errors, Not(HasSubstr("gemm_plugin")));
  std::filesystem::remove_all(engine_);
  EXPECT_THAT(build({"--context_fmha", "enable"}).errors, Not(HasSubstr("no effect")));
}

TEST_F(BuildCommand, SaysWhatItWrote) {
  const CommandResult result = build({});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, AllOf(HasSubstr(engine_.string() + ": engine of LlamaForCausalLM in float32, 2 rank(s), "),
                                   HasSubstr(": rank0.engine 0."), HasSubstr(" MB, rank1.engine 0.")));
}

TEST_F(BuildCommand, LogitsDtypeIsWritten) {
  EXPECT_EQ(build({"--logits_dtype", "float16"}).status, 0);
  EXPECT_EQ(readJsonFile(engine_ / "config.json")["pretrained_config"]["logits_dtype"], "float16");
  std::filesystem::remove_all(engine_);
  EXPECT_THAT(refusal({"--logits_dtype", "int8"}), HasSubstr("--logits_dtype"));
}

}  // namespace
}  // namespace chorus::test
