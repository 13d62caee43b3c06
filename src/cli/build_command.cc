#include "cli/build_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/reader.h"
#include "checkpoint/staged_directory.h"
#include "cli/build_flags.h"
#include "cli/flag_values.h"
#include "engine/build.h"
#include "lora/module_ids.h"
#include "lora/source_peft.h"
#include "models/architecture.h"

namespace chorus {
namespace {

struct BuildArgs {
  std::string checkpoint_dir, output_dir = "engine_outputs";
  BuildConfig config;
  std::string lora_plugin = "disable", dora_plugin = "disable", log_level = "info";
  std::vector<std::string> lora_dirs;
  int workers = 0;
  std::map<std::string, std::string> further;  // flags of the table, by name
};

bool pluginOn(const std::string& flag, const std::string& value) {
  for (const char* on : {"enable", "auto", "float16", "bfloat16", "float32"}) {
    if (value == on) return true;
  }
  if (value == "disable") return false;
  fail(ErrorCode::kInvalidArgument, "--{} {}: use auto|float16|float32|bfloat16|enable|disable", flag, value);
}

// The modules that these adapters have, as TensorRT-LLM infers an engine's targets.
std::vector<std::string> modulesOf(const std::vector<std::string>& lora_dirs, const std::string& checkpoint_dir,
                                   int64_t max_rank) {
  const ModelConfig config = CheckpointReader::open(checkpoint_dir).config();
  const WeightTable table = findArchitecture(config.architecture).weightTable(config);
  std::set<int32_t> ids;
  for (const std::string& dir : lora_dirs) {
    const Adapter adapter =
        readPeftAdapter(dir, std::filesystem::path(dir).filename().string(), {config, table, max_rank});
    for (const AdapterModule& module : adapter.modules) {
      if (loraModuleName(module.module_id)) ids.insert(module.module_id);
    }
  }
  std::vector<std::string> names;
  for (const int32_t id : ids) names.emplace_back(*loraModuleName(id));
  return names;
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
  for (const std::string& name : args.config.lora_target_modules) {
    if (!loraModuleId(name)) fail(ErrorCode::kInvalidArgument, "Invalid LoRA module {}", name);
  }
  for (const BuildFlag& flag : buildFlags()) {
    const auto given = args.further.find(std::string(flag.name));
    if (given == args.further.end() || given->second.empty()) continue;
    checkBuildFlag(flag, given->second);
    args.config.recorded[given->first] = given->second;
  }
  if (args.config.lora_target_modules.empty() && !args.lora_dirs.empty()) {
    args.config.lora_target_modules = modulesOf(args.lora_dirs, args.checkpoint_dir, args.config.max_lora_rank);
  }
  buildEngine(args.checkpoint_dir, args.output_dir, args.config, args.workers);
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
                    "PEFT adapters whose modules are the targets, unless --lora_target_modules names them");
  build->add_option("--workers", args->workers, "Packing threads; 0: all cores")
      ->check(inRange(0, 1 << 12))
      ->capture_default_str();
  build->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  for (const BuildFlag& flag : buildFlags()) {
    std::string& value = args->further[std::string(flag.name)];
    const std::string name = "--" + std::string(flag.name);
    if (flag.values == "flag") {
      build->add_flag_callback(name, [&value] { value = "true"; })->group("");
    } else {
      build->add_option(name, value)->group("");
    }
  }
  build->footer(buildFlagTable());
  build->callback([args] { runBuild(*args); });
}

}  // namespace chorus
