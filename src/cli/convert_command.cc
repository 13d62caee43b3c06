#include "cli/convert_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "checkpoint/staged_directory.h"
#include "cli/flag_values.h"
#include "convert/convert_model.h"
#include "server/model/hub_cache.h"

namespace chorus {
namespace {

struct ConvertArguments {
  std::string model_dir;
  std::string output_dir;
  std::string dtype = "auto";
  ConvertOptions options;
  bool use_weight_only = false;
  std::string precision = "int8";
  int32_t group_size = 0;
  bool quantise_head = false;
};

void addQuantisationFlags(CLI::App& command, ConvertArguments& arguments) {
  CLI::Option* use =
      command.add_flag("--use_weight_only", arguments.use_weight_only,
                       "Quantise the weights of linears, round to nearest; activations stay as they are");
  command.add_option("--weight_only_precision", arguments.precision, "Type of the quantised weights")
      ->check(oneOf({"int8", "int4"}))
      ->capture_default_str()
      ->needs(use);
  command
      .add_option("--group_size", arguments.group_size,
                  "Inputs that share a scale: 32, 64 or 128; 0 or -1: one scale for each output")
      ->check(oneOf({-1, 0, 32, 64, 128}))
      ->capture_default_str()
      ->needs(use);
  command.add_flag("--quantize_lm_head", arguments.quantise_head, "Quantise the output head too")->needs(use);
}
}  // namespace

void addConvertCommand(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  ConvertOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("convert", "Convert a model into a checkpoint");
  command
      ->add_option("--model_dir", arguments->model_dir,
                   "The model: a directory or file of any source that docs/sources.md lists")
      ->required();
  command->add_option("--output_dir", arguments->output_dir, "Checkpoint directory; an earlier checkpoint is replaced")
      ->required();
  command->add_option("--dtype", arguments->dtype, "Type of the weights; auto takes the model's own")
      ->check(oneOf({"auto", "float32", "float16", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--tp_size", options.tp_size, "Tensor-parallel ranks")
      ->check(inRange(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--pp_size", options.pp_size, "Pipeline stages")
      ->check(inRange(1, 1 << 16))
      ->capture_default_str();
  command->add_flag("--use_parallel_embedding", options.use_parallel_embedding,
                    "Cut the embedding table over the tensor-parallel ranks");
  command
      ->add_option("--embedding_sharding_dim", options.embedding_sharding_dim,
                   "With --use_parallel_embedding: 0 cuts the vocabulary, 1 the hidden size")
      ->check(oneOf({0, 1}))
      ->capture_default_str();
  command->add_option("--workers", options.workers, "Threads that copy; 0 is one per core")
      ->check(inRange(0, 1 << 12))
      ->capture_default_str();
  addQuantisationFlags(*command, *arguments);
  command->callback([arguments] {
    if (arguments->dtype != "auto") arguments->options.dtype = dtypeFromName(arguments->dtype);
    if (arguments->use_weight_only) {
      arguments->options.quantise = {.bits = arguments->precision == "int4" ? 4 : 8,
                                     .group_size = std::max(0, arguments->group_size),
                                     .quantise_head = arguments->quantise_head};
    }
    removeStagedOnInterrupt();
    convertModel(server::hubSnapshotOf(arguments->model_dir), arguments->output_dir, arguments->options);
  });
}

}  // namespace chorus
