#include "convert/sources/deepspeed.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "convert/sources/deepspeed_files.h"
#include "convert/sources/deepspeed_shards.h"
#include "convert/sources/deepspeed_zero.h"
#include "convert/sources/huggingface.h"
#include "formats/deepspeed_states.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// DeepSpeed's wrapper of a model is a module that has the model as "module".
constexpr std::string_view kWrapper = "module.";

std::string plainName(std::string_view name) {
  return std::string(name.starts_with(kWrapper) ? name.substr(kWrapper.size()) : name);
}

class CheckpointReader {
 public:
  explicit CheckpointReader(DeepSpeedFiles files) : files_(std::move(files)) {}

  SourceTensors read() {
    if (!files_.layers.empty()) {
      readLayers();
    } else if (!files_.zero3_models.empty()) {
      readStage3();
    } else if (files_.models.size() == 1) {
      readStages0To2();
    } else if (!files_.models.empty()) {
      readTensorParallel();
    } else {
      fail(ErrorCode::kCorrupt, "{}: it has no file *_model_states.pt; copy those of all ranks", where());
    }
    return std::move(tensors_);
  }

 private:
  std::string where() const { return files_.directory.string(); }

  DeepSpeedStates open(const fs::path& path) {
    auto map = std::make_shared<const MappedFile>(path);
    DeepSpeedStates states = parseDeepSpeedStates(map->bytes(), path.string());
    tensors_.keep(map, map->bytes());
    tensors_.keep(states.copies);
    return states;
  }
  // The files of consecutive ranks from 0 on.
  std::vector<DeepSpeedStates> openAll(const DeepSpeedFiles::ByRank& files, std::string_view what) {
    std::vector<DeepSpeedStates> all;
    for (const auto& [rank, path] : files) {
      if (rank != static_cast<int32_t>(all.size())) {
        fail(ErrorCode::kCorrupt, "{}: the {} of rank {} is missing", where(), what, all.size());
      }
      all.push_back(open(path));
    }
    return all;
  }
  std::vector<DeepSpeedStates> openOptimizers() {
    std::vector<DeepSpeedStates> optimizers = openAll(files_.optimizers, "file *_optim_states.pt");
    if (optimizers.empty()) {
      fail(ErrorCode::kCorrupt, "{}: it has no files *_optim_states.pt, which have the parameters", where());
    }
    const int64_t count = optimizers[0].partition_count;
    if (count > 0 && count != static_cast<int64_t>(optimizers.size())) {
      fail(ErrorCode::kCorrupt, "{}: {} files *_optim_states.pt, and the parameters are cut over {} ranks; copy all",
           where(), optimizers.size(), count);
    }
    return optimizers;
  }

  void add(std::string_view name, SourceTensor tensor, const fs::path& file) {
    std::string plain = plainName(name);
    if (tensors_.find(plain) == nullptr) tensors_.add(std::move(plain), std::move(tensor), file.string());
  }
  AddSourceTensor adder(const fs::path& file) {
    return [this, file](const std::string& name, SourceTensor tensor) { add(name, std::move(tensor), file); };
  }

  // Parameters that share the values of another.
  void addShared(const DeepSpeedStates& states, const fs::path& file) {
    for (const auto& [name, other] : states.shared_params) {
      if (const SourceTensor* tensor = tensors_.find(plainName(other))) add(name, *tensor, file);
    }
  }

  void readStages0To2() {
    const fs::path& file = files_.models.begin()->second;
    const DeepSpeedStates states = open(file);
    for (const auto& [name, tensor] : states.module) add(name, tensor, file);
    for (const auto& [name, tensor] : states.frozen_fragments) add(name, tensor, file);
    const bool whole = std::ranges::all_of(states.param_shapes, [&](const auto& group) {
      return std::ranges::all_of(
          group, [&](const NamedShape& shape) { return tensors_.find(plainName(shape.name)) != nullptr; });
    });
    if (!whole) {
      checkOneTensorRank();
      const std::vector<DeepSpeedStates> optimizers = openOptimizers();
      joinZero2(states.param_shapes, optimizers, where(), adder(files_.optimizers.begin()->second));
    }
    addShared(states, file);
  }

  void readStage3() {
    checkOneTensorRank();
    const std::vector<DeepSpeedStates> models = openAll(files_.zero3_models, "file *_model_states.pt");
    const std::vector<DeepSpeedStates> optimizers = openOptimizers();
    if (models.size() != optimizers.size()) {
      fail(ErrorCode::kCorrupt,
           "{}: {} files *_model_states.pt and {} files *_optim_states.pt; copy those of all ranks", where(),
           models.size(), optimizers.size());
    }
    if (optimizers[0].zero_stage != 3) {
      fail(ErrorCode::kCorrupt, "{}: it has the files of ZeRO stage 3, and says stage {}", where(),
           optimizers[0].zero_stage);
    }
    const fs::path& file = files_.zero3_models.begin()->second;
    joinZero3(models[0].param_shapes, optimizers, where(), adder(files_.optimizers.begin()->second));
    joinFrozenZero3(models, where(), adder(file));
    const std::set<std::string> buffers(models[0].buffer_names.begin(), models[0].buffer_names.end());
    for (const auto& [name, tensor] : models[0].module) {
      if (buffers.contains(name)) add(name, tensor, file);
    }
    addShared(models[0], file);
  }

  void checkOneTensorRank() const {
    if (files_.optimizer_tensor_ranks <= 1) return;
    fail(ErrorCode::kUnsupported,
         "{}: its parameters are cut by ZeRO and over {} tensor-parallel ranks; save the model with DeepSpeed's 16-bit "
         "gathering (save_16bit_model)",
         where(), files_.optimizer_tensor_ranks);
  }

  // The names of the model's tensors. Reads the config.
  SourceNames sourceNames() {
    std::tie(config_, table_) = huggingFaceTable(files_.config.parent_path());
    return {table_, config_.num_hidden_layers, SourceFormat::kHuggingFace};
  }

  void readTensorParallel() {
    const std::vector<DeepSpeedStates> ranks = openAll(files_.models, "file mp_rank_*_model_states.pt");
    std::map<std::string, std::vector<const TensorView*>> shards;
    for (const DeepSpeedStates& states : ranks) {
      if (states.module.empty()) {
        fail(ErrorCode::kCorrupt, "{}: a file mp_rank_*_model_states.pt has no weights", where());
      }
      for (const auto& [name, tensor] : states.module) shards[plainName(name)].push_back(&tensor);
    }
    const SourceNames names = sourceNames();
    for (const auto& [name, parts] : shards) {
      const auto expected = expectedTensor(names, name);
      if (!expected) continue;
      checkShards(parts.size(), ranks.size(), name);
      add(name, joinShards(parts, *expected, where()), files_.directory);
    }
    // Tensors that the table does not have; they are checked later.
    for (const auto& [name, parts] : shards) add(name, *parts[0], files_.directory);
    addShared(ranks[0], files_.models.begin()->second);
  }

  void checkShards(size_t found, size_t ranks, std::string_view name) const {
    if (found == ranks) return;
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' is in the files of {} of {} tensor-parallel ranks", where(), name, found,
         ranks);
  }

  void readLayers() {
    std::vector<DeepSpeedStates> opened;  // keeps the tensors that `layers` points to
    size_t count = 0;
    for (const auto& [id, ranks] : files_.layers) count += ranks.size();
    opened.reserve(count);
    std::map<int32_t, PipelineLayer> layers;
    const size_t width = files_.layers.begin()->second.size();
    for (const auto& [id, ranks] : files_.layers) {
      PipelineLayer& layer = layers[id];
      std::map<std::string, size_t> place;
      for (const auto& [rank, path] : ranks) {
        opened.push_back(openLayer(path));
        for (const auto& [name, tensor] : opened.back().module) {
          const auto [it, inserted] = place.emplace(plainName(name), layer.size());
          if (inserted) layer.emplace_back(it->first, std::vector<const TensorView*>());
          layer[it->second].second.push_back(&tensor);
        }
      }
      for (const auto& [name, parts] : layer) checkShards(parts.size(), width, name);
    }
    const SourceNames names = sourceNames();
    readPipeline(layers, names, sharesEmbedding(config_), where(), adder(files_.directory));
  }

  // Reads the file of a layer, which is the layer's state dict itself.
  DeepSpeedStates openLayer(const fs::path& path) {
    const TensorFile file = openTensorFile(path);
    tensors_.keep(file.keepAlive(), file.fileBytes());
    DeepSpeedStates states;
    for (const std::string& name : file.names()) states.module.emplace_back(name, *file.find(name));
    return states;
  }

  DeepSpeedFiles files_;
  SourceTensors tensors_;
  ModelConfig config_;
  WeightTable table_;
};

// A directory that also has the weights in Hugging Face's files has the result of the training there.
bool recognisesDeepSpeed(const fs::path& path) { return !hasHuggingFaceWeights(path) && isDeepSpeedCheckpoint(path); }

void checkDeepSpeedConfig(const fs::path& path) {
  checkHuggingFaceConfig(findDeepSpeedFiles(path).config.parent_path());
}

SourceModel openDeepSpeed(const fs::path& path, const ConvertOptions& options) {
  const DeepSpeedFiles files = findDeepSpeedFiles(path);
  const fs::path model_dir = files.config.parent_path();
  checkHuggingFaceConfig(model_dir);
  return modelWithHuggingFaceNames(model_dir, CheckpointReader(files).read(), options);
}

std::vector<fs::path> filesOfDeepSpeed(const fs::path& path) {
  const DeepSpeedFiles files = findDeepSpeedFiles(path);
  std::vector<fs::path> found = {files.config};
  if (files.directory != path) found.push_back(path / "latest");
  for (const auto* ranks : {&files.models, &files.zero3_models, &files.optimizers}) {
    for (const auto& [rank, file] : *ranks) found.push_back(file);
  }
  for (const auto& [layer, ranks] : files.layers) {
    for (const auto& [rank, file] : ranks) found.push_back(file);
  }
  std::error_code error;
  for (fs::path& file : found) file = fs::relative(file, path, error);
  return found;
}
}  // namespace

SourceReader deepSpeedReader() {
  return {.kind = "DeepSpeed checkpoint",
          .recognises = recognisesDeepSpeed,
          .check = checkDeepSpeedConfig,
          .open = openDeepSpeed,
          .files = filesOfDeepSpeed};
}

}  // namespace chorus
