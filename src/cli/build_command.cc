#include "cli/build_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/names.h"
#include "checkpoint/reader.h"
#include "checkpoint/staged_directory.h"
#include "cli/build_flags.h"
#include "cli/flag_values.h"
#include "engine/adapter_limits.h"
#include "engine/build.h"
#include "kernels/input_format.h"
#include "lora/adapter_files.h"
#include "lora/module_ids.h"
#include "models/architecture.h"

namespace chorus {
namespace {

struct BuildArgs {
  std::string checkpoint_dir, output_dir = "engine_outputs";
  BuildConfig config;
  std::string lora_plugin = "disable", dora_plugin = "disable", log_level = "info";
  std::vector<std::string> lora_dirs;
  std::string logits_dtype;  // empty: the checkpoint's dtype
  std::string activations;   // empty: as the checkpoint's quantisation says
  int workers = 0;
  std::map<std::string, std::string> further;  // flags of buildFlags(), by name
};

bool pluginOn(const std::string& flag, const std::string& value) {
  for (const char* on : {"enable", "auto", "float16", "bfloat16", "float32"}) {
    if (value == on) return true;
  }
  if (value == "disable") return false;
  fail(ErrorCode::kInvalidArgument, "--{} {}: use auto|float16|float32|bfloat16|enable|disable", flag, value);
}

// Reads the adapters against the checkpoint's model, with the limits of this configuration. Returns the names of their
// modules, from which TensorRT-LLM infers an engine's targets.
std::vector<std::string> adapterModulesOf(const BuildArgs& args) {
  const ModelConfig config = CheckpointReader::open(args.checkpoint_dir).config();
  const Architecture& architecture = architectureOf(config, args.checkpoint_dir + "/config.json");
  const WeightTable table = architecture.weightTable(config);
  checkTargetModules(args.config, table, architecture.name);
  std::set<int32_t> ids;
  for (const std::string& dir : args.lora_dirs) {
    const Adapter adapter = readAdapter(dir, std::filesystem::path(dir).filename().string(),
                                        {config, table, args.config.max_lora_rank, architecture.left_out});
    if (args.config.lora_plugin) checkServable(adapter, args.config);
    for (const AdapterModule& module : adapter.modules) {
      if (loraModuleName(module.module_id)) ids.insert(module.module_id);
    }
  }
  std::vector<std::string> names;
  for (const int32_t id : ids) names.emplace_back(*loraModuleName(id));
  return names;
}

// Logs one line: what was built, where, and each rank's size.
void logResult(const std::filesystem::path& dir) {
  const Json json = readModelConfigFile(dir / "config.json");
  const ModelConfig config = ModelConfig::fromJson(json.at("pretrained_config"), dir.string());
  std::vector<std::string> files;
  uintmax_t bytes = 0;
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    const std::string name = fmt::format("rank{}.engine", rank);
    const uintmax_t size = std::filesystem::file_size(dir / name);
    files.push_back(fmt::format("{} {:.1f} MB", name, static_cast<double>(size) / 1e6));
    bytes += size;
  }
  const auto& algo = config.quantization.quant_algo;
  log::info("{}: engine of {} in {}{}, {} rank(s), {:.1f} MB: {}", dir.string(), config.architecture,
            dtypeName(config.dtype), algo ? " and " + *algo : "", files.size(), static_cast<double>(bytes) / 1e6,
            listSome(files));
}

void runBuild(BuildArgs& args) {
  initLogging(args.log_level);
  removeStagedOnInterrupt();
  args.config.lora_plugin = pluginOn("lora_plugin", args.lora_plugin);
  args.config.dora_plugin = pluginOn("dora_plugin", args.dora_plugin);
  if (args.config.dora_plugin && !args.config.lora_plugin) {
    fail(ErrorCode::kInvalidArgument, "--dora_plugin needs --lora_plugin");
  }
  if (!args.config.lora_plugin && !args.lora_dirs.empty()) {
    log::warn("--lora_dir without --lora_plugin: the engine will serve no adapters");
  }
  if (args.config.max_beam_width != 1) {
    fail(ErrorCode::kUnsupported, "--max_beam_width {}: beam search is not served", args.config.max_beam_width);
  }
  checkForeignFlags(buildFlags(), args.further);
  for (const auto& [name, value] : args.further) {
    if (!value.empty()) args.config.recorded[name] = value;
  }
  if (!args.logits_dtype.empty()) args.config.logits_dtype = dtypeFromName(args.logits_dtype);
  if (!args.activations.empty()) args.config.activations = inputFormatFromName(args.activations);
  if (!args.lora_dirs.empty()) {
    const std::vector<std::string> modules = adapterModulesOf(args);
    if (args.config.lora_target_modules.empty()) args.config.lora_target_modules = modules;
  }
  buildEngine(args.checkpoint_dir, args.output_dir, args.config, args.workers);
  logResult(args.output_dir);
}
}  // namespace

void addBuildCommand(CLI::App& app) {
  auto args = std::make_shared<BuildArgs>();
  CLI::App* build = app.add_subcommand("build", "Pack a checkpoint into an engine directory");
  BuildConfig& config = args->config;
  build->add_option("--checkpoint_dir", args->checkpoint_dir, "Checkpoint directory (config.json, rankN.safetensors)")
      ->required();
  build->add_option("--output_dir", args->output_dir, "Engine directory to write")->capture_default_str();
  build->add_option("--max_batch_size", config.max_batch_size, "Sequences in one step")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  build->add_option("--max_input_len", config.max_input_len, "Longest prompt in tokens")
      ->check(inRange(1, 1 << 28))
      ->capture_default_str();
  build
      ->add_option("--max_seq_len,--max_decoder_seq_len", config.max_seq_len,
                   "Longest prompt plus generated tokens; 0: the model's")
      ->check(inRange(0, 1 << 28))
      ->capture_default_str();
  build->add_option("--max_num_tokens", config.max_num_tokens, "Packed tokens in one step")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  build->add_option("--max_beam_width", config.max_beam_width, "Beams; 1 is served")
      ->check(inRange(1, 1024))
      ->capture_default_str();
  build->add_option("--tokens_per_block", config.tokens_per_block, "Tokens of a KV block, a power of two")
      ->check(inRange(1, 1 << 16))
      ->capture_default_str();
  build->add_option("--lora_plugin", args->lora_plugin, "Serve LoRA adapters (enable or a dtype)")
      ->capture_default_str();
  build->add_option("--dora_plugin", args->dora_plugin, "Serve DoRA adapters")->capture_default_str();
  build->add_option("--max_lora_rank", config.max_lora_rank, "Largest adapter rank")
      ->check(inRange(1, 1 << 16))
      ->capture_default_str();
  build->add_option("--lora_target_modules", config.lora_target_modules,
                    "Module names that adapters may target (attn_q, mlp_gate, ...); none: all of the model");
  build->add_option("--lora_dir", args->lora_dirs,
                    "PEFT or NeMo adapters that the engine must take; their modules are the targets, unless "
                    "--lora_target_modules names them");
  build->add_option("--logits_dtype", args->logits_dtype, "Type that logits are rounded to; default: the checkpoint's")
      ->check(oneOf({"float32", "float16", "bfloat16"}));
  build
      ->add_option(
          "--activations", args->activations,
          "Integers to which quantised linears round their inputs in every step. int16, int8: every 128 inputs "
          "of a row, or group if that is smaller, share a scale. int8_per_token: all inputs of a row share one; "
          "for int8 weights with one scale for each output; faster on AMX, but can be less exact. Default: as the "
          "checkpoint's quant_algo says")
      ->check(oneOf(kInputFormatNames));
  build->add_option("--workers", args->workers, "Packing threads; 0: all cores")
      ->check(inRange(0, 1 << 12))
      ->capture_default_str();
  build->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  addForeignFlags(*build, buildFlags(), args->further);
  build->footer(foreignFlagTable("Further trtllm-build flags", "recorded", buildFlags()));
  build->callback([args] { runBuild(*args); });
}

}  // namespace chorus
