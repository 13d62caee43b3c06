#include "engine/build.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/reader.h"
#include "checkpoint/staged_directory.h"
#include "engine/adapter_limits.h"
#include "engine/engine_directory.h"
#include "engine/engine_file_writer.h"
#include "engine/engine_layout.h"
#include "kernels/linear/linear.h"
#include "models/architecture.h"

namespace chorus {
namespace {

bool hasLearnedPositions(const ModelConfig& model) {
  return findArchitecture(model.architecture).modelSpec(model).embedding.positions;
}

// Derives limits from the model. Errors name the flag.
void resolveLimits(BuildConfig& config, const ModelConfig& model) {
  const int64_t positions = model.max_position_embeddings;
  if (config.max_seq_len == 0) {
    if (positions == 0) {
      fail(ErrorCode::kInvalidArgument, "--max_seq_len: the checkpoint has no max_position_embeddings, so give it");
    }
    config.max_seq_len = static_cast<int32_t>(std::min<int64_t>(positions, 1 << 28));
  } else if (config.max_seq_len > positions && hasLearnedPositions(model)) {
    fail(ErrorCode::kInvalidArgument, "--max_seq_len {}: the model has learned embeddings of {} positions",
         config.max_seq_len, positions);
  } else if (positions > 0 && config.max_seq_len > positions) {
    log::warn("--max_seq_len {}: the model was made for {} positions", config.max_seq_len, positions);
  }
  config.max_input_len = std::min(config.max_input_len, config.max_seq_len);
  if ((config.tokens_per_block & (config.tokens_per_block - 1)) != 0) {
    fail(ErrorCode::kInvalidArgument, "--tokens_per_block {}: use a power of two", config.tokens_per_block);
  }
}

// A packing task: moves rows [begin, end) of a checkpoint tensor to their place in an engine tensor.
struct PackTask {
  const std::byte* source;
  const RankTensor* tensor;
  DType dtype;  // in the source
  int64_t begin, end;
  int64_t cols;       // of the source
  int64_t row_begin;  // in the engine tensor
  int64_t in;         // of the engine tensor
  EngineTensorKind kind;
  std::byte* target;
  const WeightPacker* packer;

  int64_t rowsOfSource() const {
    const bool pairs = tensor->role == TensorRole::kIntegers && tensor->format.dtype == DType::kInt4;
    return pairs ? (end - begin) / 2 : end - begin;
  }
};

void packLinear(const PackTask& task, const std::byte* rows, int64_t count) {
  const int64_t row = task.row_begin + task.begin;
  switch (task.tensor->role) {
    case TensorRole::kValues:
      return task.packer->packRows(rows, task.dtype, count, task.in, row, task.target, nullptr);
    case TensorRole::kIntegers:
      return task.packer->packRows(rows, task.tensor->format, count, task.in, row, task.target, nullptr);
    case TensorRole::kScales:
      return task.packer->packScales(rows, task.dtype, task.tensor->format, count, task.in, row, task.target);
  }
}

void runTask(const PackTask& task) {
  const auto size = static_cast<int64_t>(dtypeSize(task.dtype));
  const int64_t count = task.end - task.begin;
  const std::byte* rows = task.source + task.begin * task.rowsOfSource() / count * task.cols * size;
  switch (task.kind) {
    case EngineTensorKind::kLinear:
      return packLinear(task, rows, count);
    case EngineTensorKind::kTable:
      std::memcpy(task.target + task.begin * task.cols * size, rows, static_cast<size_t>(count * task.cols * size));
      return;
    case EngineTensorKind::kVector:
      return convertElements(rows, task.dtype, task.target + (task.row_begin + task.begin) * 4, DType::kFloat32,
                             static_cast<size_t>(count));
  }
}

uint64_t sourceBytes(const PackTask& task) {
  return static_cast<uint64_t>(task.rowsOfSource() * task.cols) * dtypeSize(task.dtype);
}

void checkScales(const RankTensor& tensor, const TensorView& scales) {
  for (size_t i = 0; i < static_cast<size_t>(scales.elements()); ++i) {
    if (std::isfinite(loadAsFloat(scales.bytes.data(), scales.dtype, i))) continue;
    fail(ErrorCode::kCorrupt, "tensor '{}' holds a scale that is not finite; convert the model again", tensor.name);
  }
}

void packRank(const RankWeights& weights, const ModelConfig& model, int32_t rank, const std::filesystem::path& path,
              const WeightPacker& packer, ThreadPool& pool) {
  std::vector<RankTensor> tensors = weights.tensors();
  // The model's activations may be of another format than the checkpoint's.
  if (const auto quantisation = weightQuantisation(model)) {
    for (RankTensor& tensor : tensors) tensor.format.activations = quantisation->format.activations;
  }
  const EngineLayout layout = engineLayout(tensors, model, rank);
  EngineFileWriter writer(path, layout.tensors, packer);

  // Rows that are appended to an engine tensor may have to be packed after the rows before them.
  std::vector<PackTask> leading, appended;
  for (const EngineLayout::Piece& piece : layout.pieces) {
    const RankTensor& tensor = *piece.source;
    if (tensor.role == TensorRole::kScales) checkScales(tensor, weights.get(tensor.name));
    const int64_t cols = tensor.cols(), experts = std::max<int64_t>(tensor.row->experts, 1);
    const std::span<const std::byte> bytes = weights.get(tensor.name).bytes;
    const EngineTensor& target = writer.tensors()[piece.target];
    for (int64_t expert = 0; expert < experts; ++expert) {
      const std::byte* source = bytes.data() +
                                static_cast<size_t>(expert) * (bytes.size() / static_cast<size_t>(experts)) +
                                static_cast<size_t>(piece.first * cols) * dtypeSize(tensor.dtype);
      std::byte* data = writer.data(piece.target) +
                        (expert > 0 ? expert * packer.expertStride(target.format(), target.rows, target.cols) : 0);
      // Tasks begin where the packer lets them run at the same time.
      const int64_t together = packer.rowsTogether(), task_rows = (512 + together - 1) / together * together;
      for (int64_t begin = 0; begin < piece.rows;) {
        const int64_t end =
            std::min((piece.row_begin + begin) / task_rows * task_rows + task_rows - piece.row_begin, piece.rows);
        auto& tasks = piece.row_begin == 0 ? leading : appended;
        tasks.push_back({source, &tensor, tensor.dtype, begin, end, cols, piece.row_begin, target.cols, target.kind,
                         data, &packer});
        begin = end;
      }
    }
  }
  uint64_t total = 0;
  for (const auto* tasks : {&leading, &appended}) {
    for (const PackTask& task : *tasks) total += sourceBytes(task);
  }
  Progress progress("packing " + path.filename().string(), total);
  for (const auto* tasks : {&leading, &appended}) {
    pool.run(static_cast<int64_t>(tasks->size()), [&](int64_t i, int) {
      const PackTask& task = (*tasks)[static_cast<size_t>(i)];
      runTask(task);
      progress.add(sourceBytes(task));
    });
  }
  writer.commit();
}
}  // namespace

void buildEngine(const std::filesystem::path& checkpoint_dir, const std::filesystem::path& output_dir,
                 BuildConfig config, int workers) {
  const auto checkpoint = CheckpointReader::open(checkpoint_dir);
  ModelConfig model = checkpoint.config();
  model.logits_dtype = config.logits_dtype.value_or(model.logits_dtype);
  if (config.activations) setActivations(model, *config.activations, "--activations");
  const Architecture& architecture = architectureOf(model, (checkpoint_dir / "config.json").string());
  const WeightTable table = architecture.weightTable(model);
  checkTargetModules(config, table, architecture.name);
  resolveLimits(config, model);
  StagedDirectory directory(output_dir, "an engine", foreignToEngine);
  const WeightPacker& packer = weightPacker(config.backend);
  ThreadPool pool(workers > 0 ? workers : availableCores());
  RankDigests digests;
  for (int32_t rank = 0; rank < model.mapping.worldSize(); ++rank) {
    const auto path = directory.path() / fmt::format("rank{}.engine", rank);
    packRank(checkpoint.rank(rank, table), model, rank, path, packer, pool);
    const MappedFile file(path);
    digests.push_back(rankDigest(file.bytes(), parseEngineFile(file.bytes(), path.string(), packer)));
  }
  writeEngineConfig(directory.path(), model.toJson(), config, digests);
  directory.publish();
}

void linkEngine(const std::filesystem::path& engine_dir, const std::filesystem::path& output_dir, BuildConfig config) {
  namespace fs = std::filesystem;
  const fs::path config_path = engine_dir / "config.json";
  const Json engine = readModelConfigFile(config_path);
  if (!engine.is_object() || !engine.contains("pretrained_config")) {
    fail(ErrorCode::kCorrupt, "{}: not an engine's config.json", config_path.string());
  }
  const Json& pretrained = engine["pretrained_config"];
  const ModelConfig model = ModelConfig::fromJson(pretrained, config_path.string() + ": pretrained_config");
  resolveLimits(config, model);
  StagedDirectory directory(output_dir, "an engine", foreignToEngine);
  // The staging directory is a sibling of output_dir, so that relative links are valid in both.
  const fs::path target = fs::relative(engine_dir, fs::absolute(output_dir));
  for (int32_t rank = 0; rank < model.mapping.worldSize(); ++rank) {
    const std::string name = fmt::format("rank{}.engine", rank);
    fs::create_symlink(target / name, directory.path() / name);
  }
  writeEngineConfig(directory.path(), pretrained, config,
                    readRankDigests(engine, model.mapping.worldSize(), config_path.string()));
  directory.publish();
}

}  // namespace chorus
