// Inspects adapters: their contents and, if a base model is given, whether the base would serve them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <variant>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/names.h"
#include "checkpoint/reader.h"
#include "cli/inspect_paths.h"
#include "convert/lora_convert.h"
#include "convert/sources/sources.h"
#include "engine/adapter_limits.h"
#include "engine/adapter_packer.h"
#include "engine/adapter_values.h"
#include "engine/engine.h"
#include "formats/npy.h"
#include "lora/adapter_files.h"
#include "lora/adapter_values.h"
#include "lora/module_ids.h"
#include "lora/nemo_reader.h"
#include "lora/peft_config.h"
#include "lora/peft_files.h"
#include "lora/shard.h"
#include "lora/tensor_adapter.h"
#include "models/architecture.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// The model to serve an adapter on, and the limits of its engine; without a built engine, the defaults of `chorus
// serve`.
struct Base {
  ModelConfig config;
  WeightTable table;
  std::span<const std::string> left_out;  // Architecture::left_out
  BuildConfig build;
  WeightFormat lora_format;  // of A and B
};

Base openBase(const AdapterBase& given) {
  const fs::path& path = given.path;
  Base base;
  base.build.lora_plugin = true;
  base.build.dora_plugin = true;
  const bool is_archive = path.extension() == kNemoExtension && !fs::is_directory(path);
  switch (is_archive ? DirectoryKind::kModel : directoryKind(path)) {
    case DirectoryKind::kEngine: {
      const auto engine = Engine::load(path);
      base.config = engine->config();
      base.build = engine->buildConfig();
      break;
    }
    case DirectoryKind::kCheckpoint:
      base.config = CheckpointReader::open(path).config();
      break;
    case DirectoryKind::kModel:
      base.config = openSource(path, {}).config;
      break;
    default:
      fail(ErrorCode::kInvalidArgument, "--base {}: not a model, checkpoint or engine directory", path.string());
  }
  const Architecture& architecture = architectureOf(base.config, (path / "config.json").string());
  base.table = architecture.weightTable(base.config);
  base.left_out = architecture.left_out;
  base.lora_format = given.int8_adapters ? int8LoraFormat() : WeightFormat(base.config.dtype);
  return base;
}

std::string rangeText(int64_t least, int64_t most) {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

std::string nameOf(const fs::path& dir) {
  return dir.has_filename() ? dir.filename().string() : dir.parent_path().filename().string();
}

// Describes the weights that replace the base's own.
void addReplacements(const Adapter& adapter, const Base& base, Inspection& found) {
  std::set<std::string> rows;
  for (const AdapterWeight& weight : adapter.weights) {
    constexpr std::string_view kLayers = "transformer.layers.{layer}.";
    const WeightRow* row = findRow(base.table, weight.slot);
    const std::string name = row != nullptr ? row->name : std::string(kHeadTensor);  // a head that the model ties
    rows.insert(name.starts_with(kLayers) ? name.substr(kLayers.size()) : name);
  }
  if (!rows.empty()) found.addList("own weights", {rows.begin(), rows.end()});
  const auto addTokens = [&](const char* name, const AdapterTokens& tokens) {
    if (!tokens.empty()) found.add(name, std::ssize(tokens.tokens));
  };
  addTokens("trained tokens", adapter.embedding_tokens);
  addTokens("trained tokens of the output head", adapter.head_tokens);
  if (adapter.input_vocab_size > 0) found.add("tokens", adapter.input_vocab_size);
  if (adapter.vocab_size > 0) found.add("tokens of its logits", adapter.vocab_size);
}

void describeAdapter(const Adapter& adapter, const Base& base, Inspection& found) {
  std::set<std::string> modules;
  std::set<int32_t> layers;
  std::set<int64_t> ranks;
  std::set<float> scales;
  for (const AdapterModule& module : adapter.modules) {
    modules.insert(module.module_name);
    if (module.layer >= 0) layers.insert(module.layer);
    ranks.insert(module.rank);
    scales.insert(module.scale);
  }
  found.addList("modules", {modules.begin(), modules.end()});
  found.add("layers", layers, fmt::format("{} of {}", layers.size(), base.config.num_hidden_layers));
  if (!adapter.modules.empty()) {
    found.add("rank", ranks, rangeText(*ranks.begin(), *ranks.rbegin()));
    found.add("scale", scales,
              scales.size() == 1 ? fmt::format("{}", *scales.begin())
                                 : fmt::format("{} to {}", *scales.begin(), *scales.rbegin()));
  }
  addReplacements(adapter, base, found);
  if (!adapter.left_out.empty()) found.addList("tensors not used", adapter.left_out);
  if (!adapter.without_effect.empty()) found.add("effect", nullptr, "none: " + adapter.without_effect);
  uint64_t largest = 0;
  for (int32_t rank = 0; rank < base.config.mapping.worldSize(); ++rank) {
    const Adapter part = shardAdapter(adapter, base.config, base.table, rank);
    const AdapterPacker packer(base.config, base.table, weightPacker(base.build.backend), rank, base.lora_format);
    largest = std::max(largest, static_cast<uint64_t>(packer.bytes(part)));
  }
  found.addBytes("in memory", largest, base.config.mapping.worldSize() > 1 ? "the largest rank" : "");
  found.add("content hash", adapter.content_hash);
}

// Whether the base would serve it.
void checkOnBase(const Adapter& adapter, const Base& base) {
  checkServable(adapter, base.build);
  checkValues(adapter, {base.table, base.config.dtype, isQuantised(base.lora_format.dtype)}, nullptr);
}

// Describes a config tensor of the right dtype and shape: its modules, layers and ranks.
void describeRows(const NpyArray& config, Inspection& found) {
  std::set<std::string> modules;
  std::set<int32_t> layers, ranks;
  bool dora = false;
  const auto columns = static_cast<size_t>(config.shape.back());
  std::vector<int32_t> values(config.data.size() / sizeof(int32_t));
  std::memcpy(values.data(), config.data.data(), config.data.size());
  for (size_t at = 0; at + columns <= values.size(); at += columns) {
    modules.insert(std::string(loraModuleName(values[at]).value_or("unknown module")));
    layers.insert(values[at + 1]);
    ranks.insert(values[at + 2]);
    dora = dora || (columns == 4 && values[at + 3] != 0);
  }
  found.add("kind", dora ? "DoRA" : "LoRA");
  found.addList("modules", {modules.begin(), modules.end()});
  found.add("layers", layers, std::to_string(layers.size()));
  if (!ranks.empty()) found.add("rank", ranks, rangeText(*ranks.begin(), *ranks.rbegin()));
}
}  // namespace

void inspectLoraTensors(const fs::path& dir, const AdapterBase& given, Inspection& found) {
  found.setKind("LoRA tensors");
  const auto config_file = std::make_shared<MappedFile>(dir / kLoraConfigFile);
  const auto weights_file = std::make_shared<MappedFile>(dir / kLoraWeightsFile);
  const NpyArray config = parseNpy(config_file->bytes(), config_file->path().string());
  const NpyArray weights = parseNpy(weights_file->bytes(), weights_file->path().string());
  const auto dimensions = config.shape.size();
  if (config.dtype != DType::kInt32 || dimensions < 2 || dimensions > 3 ||
      (config.shape.back() != 3 && config.shape.back() != 4)) {
    fail(ErrorCode::kCorrupt, "{}: {} of shape {}, expected int32 [1, rows, 4]", config_file->path().string(),
         dtypeName(config.dtype), shapeText(config.shape));
  }
  describeRows(config, found);
  found.add("storage type", std::string(dtypeName(weights.dtype)));
  found.add("shape", weights.shape, shapeText(weights.shape));
  if (given.path.empty()) {
    found.add("base", nullptr, "not given: --base says whether it would serve there");
    return;
  }
  const Base base = openBase(given);
  found.add("base", given.path.string(), fmt::format("{} ({})", given.path.string(), base.config.architecture));
  checkServable(Adapter{.name = nameOf(dir)}, base.build);
  const auto owner =
      std::make_shared<std::pair<decltype(config_file), decltype(weights_file)>>(config_file, weights_file);
  const Adapter adapter =
      readTensorAdapter({weights.dtype, weights.shape, weights.data}, {config.dtype, config.shape, config.data}, owner,
                        nameOf(dir), {base.config, base.table, base.build.max_lora_rank});
  describeAdapter(adapter, base, found);
  checkOnBase(adapter, base);
}

namespace {

void describePeft(const AdapterLocation& location, Inspection& found) {
  const PeftFiles files = std::get<PeftFiles>(readAdapterFiles(location, AdapterFileLimits::ofAnyModel()).files);
  const PeftConfig config = PeftConfig::parse(files.config, files.config_source);
  found.setKind(config.mlx ? "mlx-lm adapter" : "PEFT adapter");
  found.add("kind", config.use_dora ? "DoRA" : config.use_rslora ? "rsLoRA" : "LoRA");
  found.add("r", config.r);
  found.add("lora_alpha", config.lora_alpha, fmt::format("{}", config.lora_alpha));
  if (const auto& names = config.modules.targets().ends; !names.empty()) found.addList("target_modules", names);
  const TensorFile& weights = files.weights;
  found.add("weights", weights.source());
  uint64_t bytes = 0;
  for (const std::string& tensor : weights.names()) bytes += weights.find(tensor)->bytes.size();
  found.add("tensors", static_cast<int64_t>(weights.names().size()));
  found.addBytes("bytes of tensors", bytes);
  if (isUntrained(weights)) found.add("effect", nullptr, "none: every lora_B is zero, as before training");
}

void describeNemo(const AdapterLocation& location, Inspection& found) {
  found.setKind("NeMo adapter");
  const NemoFiles files = std::get<NemoFiles>(readAdapterFiles(location, AdapterFileLimits::ofAnyModel()).files);
  found.add("archive", fs::path(files.source).filename().string());
  found.add("kind", "LoRA");
  found.add("ranks", files.shards.size(), fmt::format("tp {}, pp {}", files.tp_size, files.pp_size));
  uint64_t bytes = 0;
  int64_t tensors = 0;
  for (const TensorFile& shard : files.shards) {
    for (const std::string& name : shard.names()) bytes += shard.find(name)->bytes.size();
    tensors += std::ssize(shard.names());
  }
  found.add("tensors", tensors);
  found.addBytes("bytes of tensors", bytes);
  const NemoModules read = readNemoModules(files, NemoShape::of(files.config, files.config_source));
  std::set<std::string> modules;
  std::set<int64_t> ranks;
  for (const NemoModule& module : read.modules) {
    modules.insert(std::string(*loraModuleName(module.module_id)));
    ranks.insert(module.a.shape[0]);
  }
  found.addList("modules of the archive", {modules.begin(), modules.end()});
  found.add("adapter_dim", ranks, rangeText(*ranks.begin(), *ranks.rbegin()));
  found.add("alpha / adapter_dim", read.scale, fmt::format("{}", read.scale));
}
}  // namespace

void inspectAdapter(const fs::path& path, const AdapterBase& given, Inspection& found) {
  const AdapterLocation location = AdapterLocation::of(path);
  if (location.isArchive()) {
    describeNemo(location, found);
  } else {
    describePeft(location, found);
  }
  if (given.path.empty()) {
    found.add("base", nullptr, "not given: --base says whether it would serve there");
    return;
  }
  const Base base = openBase(given);
  found.add("base", given.path.string(), fmt::format("{} ({})", given.path.string(), base.config.architecture));
  const std::string name = nameOf(path);
  checkServable(Adapter{.name = name}, base.build);
  const Adapter adapter = readAdapter(path, name, {base.config, base.table, base.build.max_lora_rank, base.left_out});
  describeAdapter(adapter, base, found);
  checkOnBase(adapter, base);
}

}  // namespace chorus
