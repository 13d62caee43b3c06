#include "convert/sources/huggingface.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/names.h"
#include "convert/sources/config_file.h"
#include "formats/huggingface_files.h"
#include "lora/peft_keys.h"
#include "models/architecture.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

std::string classNameOf(const Json& json, std::string_view source) {
  const auto list = json.is_object() ? json.find("architectures") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array() || list->empty() || !(*list)[0].is_string()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'architectures' must name the model's class", source);
  }
  return (*list)[0].get<std::string>();
}

// Files that were saved without the class of the output head, such as GPT-2's, lack the model's own name ("model.",
// "transformer.") before the names of all its tensors. Removes it from the sources if the files lack it.
void removeOwnName(const SourceTensors& tensors, WeightTable& table) {
  const std::string layers = layersName(table);
  const std::string own = layers.substr(0, layers.find('.') + 1);
  const std::string& first = sourcesOf(table.front(), SourceFormat::kHuggingFace).front()->name;
  if (!first.starts_with(own) || tensors.find(first) != nullptr || tensors.find(first.substr(own.size())) == nullptr) {
    return;
  }
  for (WeightRow& row : table) {
    for (WeightSource& source : row.sources) {
      if (source.format == SourceFormat::kHuggingFace && source.name.starts_with(own)) source.name.erase(0, own.size());
    }
  }
}

// The table of the config, with the names that the files have.
WeightTable tableFor(const SourceTensors& tensors, const Architecture& architecture, const ModelConfig& config) {
  WeightTable table = architecture.weightTable(config);
  removeOwnName(tensors, table);
  keepSpelling(table, SourceFormat::kHuggingFace,
               [&](const std::string& name) { return tensors.find(name) != nullptr; });
  return table;
}

LeftOutTensors leftOutTensors(const SourceTensors& tensors, const Architecture& architecture) {
  LeftOutTensors left_out;
  for (const std::string& name : tensors.names()) {
    if (!matchesAny(architecture.left_out, name)) continue;
    const SourceTensor& tensor = *tensors.find(name);
    ++left_out.count;
    left_out.bytes += static_cast<uint64_t>(tensor.rows() * tensor.cols()) * dtypeSize(tensor.dtype());
  }
  return left_out;
}

DType targetDType(const Json& json, const Architecture& architecture, const ModelConfig& config,
                  const SourceTensors& tensors, const ConvertOptions& options, std::string_view source) {
  if (options.dtype) return *options.dtype;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto name = jsonGetOr<std::string>(json, key, "", source);
    if (name.empty()) continue;
    const auto dtype = dtypeFromName(name);
    if (dtype == DType::kFloat64) return DType::kFloat32;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
      fail(ErrorCode::kUnsupported, "{}: '{}' is {}; give --dtype float32, float16 or bfloat16", source, key, name);
    }
    return *dtype;
  }
  const WeightTable table = tableFor(tensors, architecture, config);
  const SourceTensor* first =
      tensors.find(layerName(sourcesOf(table.front(), SourceFormat::kHuggingFace).front()->name, 0));
  const bool half = first != nullptr && (first->dtype() == DType::kFloat16 || first->dtype() == DType::kBFloat16);
  return half ? first->dtype() : DType::kFloat32;
}

bool isWeightFile(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || name.ends_with(".bin") ||
         name.ends_with(".bin.index.json");
}

bool isHuggingFace(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored) && !configHas(path, "pretrained_config");
}

SourceModel openHuggingFace(const fs::path& model_dir, const ConvertOptions& options) {
  checkHuggingFaceConfig(model_dir);
  SourceTensors tensors;
  const HuggingFaceFiles files = HuggingFaceFiles::open(model_dir);
  for (const TensorFile& file : files.files()) tensors.addFile(file);
  return modelWithHuggingFaceNames(model_dir, std::move(tensors), options);
}

std::vector<fs::path> huggingFaceFiles(const fs::path& model_dir) {
  std::vector<fs::path> files = {"config.json"};
  for (const auto& entry : fs::directory_iterator(model_dir)) {
    if (entry.is_regular_file() && isWeightFile(entry.path())) files.push_back(entry.path().filename());
  }
  std::sort(files.begin() + 1, files.end());
  return files;
}
}  // namespace

SourceReader huggingFaceReader() {
  return {.kind = "Hugging Face model",
          .recognises = isHuggingFace,
          .check = checkHuggingFaceConfig,
          .open = openHuggingFace,
          .files = huggingFaceFiles};
}

void checkHuggingFaceConfig(const fs::path& model_dir) {
  const auto config_path = model_dir / "config.json";
  const Json json = readModelConfigFile(config_path);
  findArchitecture(classNameOf(json, config_path.string()));
}

bool hasHuggingFaceWeights(const fs::path& dir) {
  std::error_code ignored;
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(dir / name, ignored)) return true;
  }
  return false;
}

std::pair<ModelConfig, WeightTable> huggingFaceTable(const fs::path& model_dir) {
  const auto config_path = model_dir / "config.json";
  const std::string source = config_path.string();
  const Json json = readModelConfigFile(config_path);
  const Architecture& architecture = findArchitecture(classNameOf(json, source));
  ModelConfig config = architecture.configFromHuggingFace(json, source);
  config.finalize(source);
  WeightTable table = architecture.weightTable(config);
  return {std::move(config), std::move(table)};
}

namespace {

// A file may have an output head that is not the embedding table although the config ties them, for example after a
// training of the head alone. As in transformers 5, the tensors decide then.
void untieOtherHead(const Architecture& architecture, SourceModel& model, std::string_view source) {
  if (!model.config.tie_word_embeddings) return;
  ModelConfig untied = model.config;
  untied.tie_word_embeddings = false;
  const WeightTable table = tableFor(model.tensors, architecture, untied);
  const auto tensorOf = [&](const WeightSlot& slot) -> const SourceTensor* {
    const WeightRow* row = findRow(table, slot);
    return row == nullptr ? nullptr : model.tensors.find(sourcesOf(*row, model.format).front()->name);
  };
  const SourceTensor* head = tensorOf(slotOf(LinearId::kHead));
  const SourceTensor* embedding = tensorOf(slotOf(TableId::kTokens));
  if (head == nullptr || embedding == nullptr || haveEqualValues(*head, *embedding)) return;
  log::warn("{}: tie_word_embeddings is set, but the output head differs from the embedding; they are not tied",
            source);
  model.config.tie_word_embeddings = false;
}

}  // namespace

SourceModel modelWithHuggingFaceNames(const fs::path& model_dir, SourceTensors tensors, const ConvertOptions& options) {
  const auto config_path = model_dir / "config.json";
  const std::string source = config_path.string();
  const Json json = readModelConfigFile(config_path);
  const Architecture& architecture = findArchitecture(classNameOf(json, source));
  SourceModel model = {.tensors = std::move(tensors),
                       .config = architecture.configFromHuggingFace(json, source),
                       .table = {},
                       .format = SourceFormat::kHuggingFace};
  untieOtherHead(architecture, model, source);
  model.config.dtype = targetDType(json, architecture, model.config, model.tensors, options, source);
  applyOptions(options, model.config, source);
  model.table = tableFor(model.tensors, architecture, model.config);
  model.left_out = leftOutTensors(model.tensors, architecture);
  std::vector<std::string> ignored = architecture.ignored_sources;
  ignored.insert(ignored.end(), architecture.left_out.begin(), architecture.left_out.end());
  checkSources(model, ignored, model_dir.string(), "config.json");
  return model;
}

}  // namespace chorus
