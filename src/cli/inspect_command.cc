#include "cli/inspect_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "cli/inspect_architectures.h"
#include "cli/inspect_kernels.h"
#include "cli/inspect_paths.h"
#include "cli/print_text.h"
#include "convert/sources/checkpoint.h"
#include "convert/sources/config_file.h"
#include "convert/sources/nemo.h"
#include "convert/sources/sources.h"
#include "lora/adapter_files.h"
#include "runtime/lora_files.h"
#include "server/model/hub_cache.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

struct InspectArgs {
  std::string path, base, lora_storage = "model", log_level = "error";
  bool json = false, kernels = false, architectures = false;
};

void inspectPath(const fs::path& path, const AdapterBase& base, Inspection& found) {
  if (!fs::exists(path)) fail(ErrorCode::kNotFound, "{}: {}", path.string(), missingModelText(path));
  if (!fs::is_directory(path)) {
    if (holdsNemoAdapter(path)) return inspectAdapter(path, base, found);
    return findSourceReader(path) != nullptr ? inspectModel(path, found) : inspectFile(path, found);
  }
  const DirectoryKind kind = directoryKind(path);
  if (kind != DirectoryKind::kAdapter && kind != DirectoryKind::kLoraTensors && !base.path.empty()) {
    fail(ErrorCode::kInvalidArgument, "--base: {} is not an adapter directory", path.string());
  }
  switch (kind) {
    case DirectoryKind::kModel:
      return inspectModel(path, found);
    case DirectoryKind::kCheckpoint:
      return inspectCheckpoint(path, found);
    case DirectoryKind::kEngine:
      return inspectEngine(path, found);
    case DirectoryKind::kAdapter:
      return inspectAdapter(path, base, found);
    case DirectoryKind::kLoraTensors:
      return inspectLoraTensors(path, base, found);
    case DirectoryKind::kTokenizer:
      return inspectTokenizer(path, found);
  }
}

void runInspect(const InspectArgs& args) {
  initLogging(args.log_level);
  if (args.architectures) {
    return printText(args.json ? jsonText(architecturesJson(knownArchitectures()))
                               : architecturesTable(knownArchitectures()));
  }
  if (args.kernels) return printKernels();
  if (args.path.empty()) fail(ErrorCode::kInvalidArgument, "inspect: give a path, --kernels or --architectures");
  Inspection found;
  std::optional<Error> refusal;
  try {
    const AdapterBase base{server::hubSnapshotOf(args.base), args.lora_storage == "int8"};
    inspectPath(server::hubSnapshotOf(args.path), base, found);
  } catch (const Error& error) {
    refusal = error;
    found.problem = error.what();
  }
  printText(args.json ? jsonText(found.json(args.path)) : found.table(args.path));
  if (refusal) throw Error(*refusal);
}
}  // namespace

DirectoryKind directoryKind(const fs::path& dir) {
  if (fs::exists(dir / kPeftConfigFile)) return DirectoryKind::kAdapter;
  if (holdsLoraFiles(dir)) return DirectoryKind::kLoraTensors;
  if (configHas(dir, "pretrained_config")) return DirectoryKind::kEngine;
  if (checkpointReader().recognises(dir)) return DirectoryKind::kCheckpoint;
  if (holdsNemoAdapter(dir)) return DirectoryKind::kAdapter;
  if (findSourceReader(dir) == nullptr) {
    if (isAdapter(dir)) return DirectoryKind::kAdapter;
    if (hasTokenizer(dir)) return DirectoryKind::kTokenizer;
  }
  sourceReaderOf(dir);  // refuses a directory that holds something else
  return DirectoryKind::kModel;
}

void addInspectCommand(CLI::App& app) {
  auto args = std::make_shared<InspectArgs>();
  CLI::App* inspect = app.add_subcommand(
      "inspect",
      "Describe a path: what it holds, whether it is complete, how much memory it takes, and whether it would serve");
  inspect->add_option("path", args->path,
                      "A model of any source, or a checkpoint, engine, adapter or tokenizer directory, or a "
                      ".nemo, safetensors, PyTorch, npy or engine file");
  CLI::Option* kernels =
      inspect->add_flag("--kernels", args->kernels, "Instead of a path: which variant of each op this machine uses");
  inspect
      ->add_flag("--architectures", args->architectures,
                 "Instead of a path: the table of the models that this program supports")
      ->excludes(kernels);
  CLI::Option* base = inspect->add_option("--base", args->base,
                                          "For an adapter: the model, checkpoint or engine directory to serve it on");
  addLoraStorageFlag(*inspect, args->lora_storage)->needs(base);
  inspect->add_flag("--json", args->json, "Print JSON");
  inspect->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  inspect->footer("Exit status 2 and one line on stderr when something is missing or wrong.");
  inspect->callback([args] { runInspect(*args); });
}

}  // namespace chorus
