#include "convert/huggingface.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/writer.h"
#include "convert/quantise.h"
#include "convert/tensor_copy.h"
#include "lora/peft_keys.h"
#include "models/architecture.h"

namespace chorus {
namespace {

std::string classNameOf(const Json& json, std::string_view source) {
  const auto list = json.is_object() ? json.find("architectures") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array() || list->empty() || !(*list)[0].is_string()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'architectures' must name the model's class", source);
  }
  return (*list)[0].get<std::string>();
}

// Files that were saved without the class of the output head, such as GPT-2's, lack the model's own name ("model.",
// "transformer.") before the names of all its tensors. Removes it from the sources if the files lack it.
void removeOwnName(const TensorSource& tensors, WeightTable& table) {
  const std::string layers = layersName(table);
  const std::string own = layers.substr(0, layers.find('.') + 1);
  const std::string& first = sourcesOf(table.front(), SourceFormat::kHuggingFace).front()->name;
  if (!first.starts_with(own) || tensors.find(first) != nullptr || tensors.find(first.substr(own.size())) == nullptr) {
    return;
  }
  for (WeightRow& row : table) {
    for (WeightSource& source : row.sources) {
      if (source.name.starts_with(own)) source.name.erase(0, own.size());
    }
  }
}

DType targetDType(const Json& json, const Architecture& architecture, const ModelConfig& config,
                  const TensorSource& tensors, const ConvertOptions& options, std::string_view source) {
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
  WeightTable table = architecture.weightTable(config);
  removeOwnName(tensors, table);
  const TensorView* first =
      tensors.find(layerName(sourcesOf(table.front(), SourceFormat::kHuggingFace).front()->name, 0));
  const bool half = first != nullptr && (first->dtype == DType::kFloat16 || first->dtype == DType::kBFloat16);
  return half ? first->dtype : DType::kFloat32;
}

// Checks that every source tensor of the table is present with the right shape, and that there are no other tensors
// except those that `ignored` matches.
void checkSources(const WeightTable& table, const ModelConfig& config, const TensorSource& tensors,
                  const std::vector<std::string>& ignored, const std::filesystem::path& model_dir) {
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  const auto check = [&](const WeightRow& row, const WeightSource& source, const std::string& name) {
    expected.insert(name);
    const TensorView* tensor = tensors.find(name);
    if (tensor == nullptr) {
      missing.push_back(name);
      return;
    }
    const std::vector<int64_t> shape = sourceShape(row, source);
    if (tensor->shape != shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, config.json asks for {}", tensors.fileOf(name), name,
           shapeText(tensor->shape), shapeText(shape));
    }
    if (!isConvertible(tensor->dtype)) {
      fail(ErrorCode::kUnsupported, "{}: tensor '{}' is {}; only unquantised weights are converted",
           tensors.fileOf(name), name, dtypeName(tensor->dtype));
    }
  };
  for (const WeightRow& row : table) {
    const int32_t layers = row.stage == Stage::kEveryLayer ? config.num_hidden_layers : 1;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (!row.isInLayer(layer)) continue;
      for (const WeightSource* source : sourcesOf(row, SourceFormat::kHuggingFace)) {
        const std::string name = layerName(source->name, layer);
        const int64_t names = namesExpert(name) ? row.experts : 1;
        for (int64_t expert = 0; expert < names; ++expert) check(row, *source, expertName(name, expert));
      }
    }
  }
  if (!missing.empty()) {
    fail(ErrorCode::kCorrupt, "{}: Required but not provided tensors: {}", model_dir.string(), listSome(missing));
  }
  for (const std::string& name : tensors.names()) {
    if (!expected.contains(name) && !matchesAny(ignored, name)) unexpected.push_back(name);
  }
  if (!unexpected.empty()) {
    fail(ErrorCode::kCorrupt,
         "{}: tensors that {} does not have: {}; the weights and config.json are of different models",
         model_dir.string(), config.architecture, listSome(unexpected));
  }
}

// One job makes both the integers and the scales of a quantised tensor.
struct Job {
  int32_t rank;
  const RankTensor* tensor;
  const RankTensor* scales;  // scales of `tensor` if it holds integers, otherwise null
  uint64_t bytes;
};

uint64_t fileBytes(const RankTensor& tensor) {
  uint64_t bytes = dtypeSize(tensor.dtype);
  for (const int64_t extent : tensor.shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

// Sorts the jobs from largest to smallest, so that at the end no worker is still busy with an embedding table while the
// others are idle.
std::vector<Job> planJobs(const CheckpointWriter& writer, int32_t ranks) {
  std::vector<Job> jobs;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    for (const RankTensor& tensor : writer.tensors(rank)) {
      if (tensor.role == TensorRole::kScales) {
        jobs.back().scales = &tensor;
        jobs.back().bytes += fileBytes(tensor);
      } else {
        jobs.push_back({rank, &tensor, nullptr, fileBytes(tensor)});
      }
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.bytes > b.bytes; });
  return jobs;
}

void copyAll(const std::vector<Job>& jobs, const ModelConfig& config, const TensorSource& tensors,
             CheckpointWriter& writer, int32_t workers) {
  uint64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  Progress progress("converting", total);
  std::atomic<bool> failed{false};
  std::exception_ptr first_failure;
  std::mutex mutex;
  ThreadPool pool(workers, 0);
  pool.run(static_cast<int64_t>(jobs.size()), [&](int64_t index, int /*thread*/) {
    if (failed.load()) return;
    const Job& job = jobs[static_cast<size_t>(index)];
    try {
      const auto into = [&](const RankTensor* tensor) {
        return [&, tensor](uint64_t offset, std::span<const std::byte> bytes) {
          writer.write(job.rank, tensor->name, offset, bytes);
          progress.add(bytes.size());
        };
      };
      if (job.scales != nullptr) {
        quantiseRankTensor(*job.tensor, config.mapping, job.rank, tensors, into(job.tensor), into(job.scales));
      } else {
        copyRankTensor(*job.tensor, config.mapping, job.rank, tensors, into(job.tensor));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first_failure = std::current_exception();
    }
  });
  if (first_failure) std::rethrow_exception(first_failure);
}
}  // namespace

void checkHuggingFaceConfig(const std::filesystem::path& model_dir) {
  const auto config_path = model_dir / "config.json";
  if (!std::filesystem::is_regular_file(config_path)) {
    fail(ErrorCode::kNotFound, "{}: not a Hugging Face model directory: it has no config.json", model_dir.string());
  }
  const std::string source = config_path.string();
  const Json json = readJsonFile(config_path);
  findArchitecture(classNameOf(json, source));
}

ModelConfig configOfHuggingFace(const std::filesystem::path& model_dir, const TensorSource& tensors,
                                const ConvertOptions& options) {
  const auto config_path = model_dir / "config.json";
  const std::string source = config_path.string();
  const Json json = readJsonFile(config_path);
  const Architecture& architecture = findArchitecture(classNameOf(json, source));
  ModelConfig config = architecture.configFromHuggingFace(json, source);
  config.dtype = targetDType(json, architecture, config, tensors, options, source);
  config.mapping = {options.tp_size, options.pp_size};
  config.use_parallel_embedding = options.use_parallel_embedding;
  config.embedding_sharding_dim = options.embedding_sharding_dim;
  config.finalize(source);
  architectureOf(config, source);
  if (const auto& quantise = options.quantise) {
    if (quantise->quantise_head && sharesEmbedding(config)) {
      fail(ErrorCode::kUnsupported,
           "--quantize_lm_head: the model's output head is its embedding table, which stays {}",
           dtypeName(config.dtype));
    }
    setQuantisation(config, quantise->bits, quantise->group_size, quantise->quantise_head);
  }
  return config;
}

HuggingFaceModel openHuggingFace(const std::filesystem::path& model_dir, const ConvertOptions& options) {
  checkHuggingFaceConfig(model_dir);
  HuggingFaceModel model = {.tensors = TensorSource::open(model_dir), .config = {}, .table = {}};
  model.config = configOfHuggingFace(model_dir, model.tensors, options);
  const Architecture& architecture = findArchitecture(model.config.architecture);
  model.table = architecture.weightTable(model.config);
  removeOwnName(model.tensors, model.table);
  keepSpelling(model.table, [&](const std::string& name) { return model.tensors.find(name) != nullptr; });
  checkSources(model.table, model.config, model.tensors, architecture.ignored_sources, model_dir);
  return model;
}

void convertHuggingFace(const std::filesystem::path& model_dir, const std::filesystem::path& output_dir,
                        const ConvertOptions& options) {
  const auto [tensors, config, table] = openHuggingFace(model_dir, options);
  CheckpointWriter writer(output_dir, config, table);
  const std::vector<Job> jobs = planJobs(writer, config.mapping.worldSize());
  const auto cores = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  copyAll(jobs, config, tensors, writer, options.workers > 0 ? options.workers : cores);
  writer.publish();

  uint64_t bytes = 0;
  for (const Job& job : jobs) bytes += job.bytes;
  const auto& algo = config.quantization.quant_algo;
  log::info("{}: {} in {}{}, {} rank(s), {:.1f} MB", output_dir.string(), config.architecture, dtypeName(config.dtype),
            algo ? " and " + *algo : "", config.mapping.worldSize(), static_cast<double>(bytes) / 1e6);
}

}  // namespace chorus
