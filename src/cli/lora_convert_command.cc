#include "cli/lora_convert_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/log.h"
#include "checkpoint/staged_directory.h"
#include "cli/flag_values.h"
#include "convert/lora_convert.h"

namespace chorus {
namespace {

struct LoraConvertArguments {
  std::string in_file;
  std::string out_dir;
  std::string storage_type = "float16";
  bool verbose = false;
};

constexpr const char* kFooter =
    "Writes model.lora_config.npy, int32 [1, rows, 4] (module id, layer, rank, is_dora), and model.lora_weights.npy,\n"
    "[1, rows, longest] (A, B with the scale folded in, DoRA's magnitude; zeros to the right).\n"
    "\n"
    "Module ids:\n"
    "   0 attn_qkv      qkv_proj, c_attn of GPT-2        5 mlp_h_to_4h   gate_proj, c_fc\n"
    "   1 attn_q        q_proj                           6 mlp_4h_to_h   down_proj, c_proj\n"
    "   2 attn_k        k_proj                           7 mlp_gate      up_proj\n"
    "   3 attn_v        v_proj                          18 mlp_gate_up   gate_up_proj (rows of gate, then of up)\n"
    "   4 attn_dense    o_proj, dense\n"
    "   8 to 12         0 to 4 of cross attention       16 moe_router    gate\n"
    "  13 moe_h_to_4h   w1 of all experts               17 mlp_router    shared_expert_gate\n"
    "  14 moe_4h_to_h   w2 of all experts\n"
    "  15 moe_gate      w3 of all experts              19 to 21         5 to 7 of a shared expert\n"
    "gate_proj is 5 and up_proj is 7: what TensorRT-LLM's converter writes, though its documentation has it the other\n"
    "way round.\n"
    "\n"
    "DoRA's magnitudes are copied: run chorus dora-normalize first, for a server divides by no norm.";

void runLoraConvert(const LoraConvertArguments& arguments) {
  initLogging(arguments.verbose ? "debug" : "info");
  removeStagedOnInterrupt();
  const LoraConversion done = convertLora(arguments.in_file, arguments.out_dir, *dtypeFromName(arguments.storage_type));
  if (done.lacks_norms) {
    log::warn(
        "{}: a DoRA adapter whose magnitudes are taken as they are; a server needs those of chorus dora-normalize",
        arguments.in_file);
  }
  log::info("{}: {} rows of up to {} values, {}", arguments.out_dir, done.rows, done.longest, arguments.storage_type);
}
}  // namespace

void addLoraConvertCommand(CLI::App& app) {
  auto arguments = std::make_shared<LoraConvertArguments>();
  CLI::App* command =
      app.add_subcommand("lora-convert", "Convert a PEFT or NeMo adapter into the tensors of an Executor request");
  command
      ->add_option("-i,--in-file", arguments->in_file,
                   "PEFT directory (adapter_config.json and adapter_model.safetensors or .bin), or a directory with a "
                   ".nemo file, or that file")
      ->required();
  command
      ->add_option("-o,--out-dir", arguments->out_dir, "Directory of the two .npy files; an earlier result is replaced")
      ->required();
  command->add_option("--storage-type", arguments->storage_type, "Type of the weights")
      ->check(oneOf({"float32", "float16", "bfloat16"}))
      ->capture_default_str();
  command->add_flag("--verbose", arguments->verbose, "Say more");
  command->footer(kFooter);
  command->callback([arguments] { runLoraConvert(*arguments); });
}

}  // namespace chorus
