#include "convert/sources/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "checkpoint/writer.h"
#include "convert/sources/config_file.h"
#include "convert/tensor_copy.h"
#include "models/architecture.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

bool isCheckpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / rankFileName(0), ignored)) return true;
  return configHas(path, "architecture") && !configHas(path, "architectures");
}

ModelConfig checkpointConfig(const fs::path& dir) {
  const auto path = dir / "config.json";
  return ModelConfig::fromJson(readModelConfigFile(path), path.string());
}

void checkCheckpoint(const fs::path& dir) {
  const ModelConfig config = checkpointConfig(dir);
  findArchitecture(config.architecture);
  checkQuantisation(config, (dir / "config.json").string());
}

std::vector<fs::path> checkpointFiles(const fs::path& dir) {
  std::vector<fs::path> files = {"config.json"};
  const ModelConfig config = checkpointConfig(dir);
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) files.emplace_back(rankFileName(rank));
  return files;
}

// A tensor of the model while it is put together from the ranks' tensors.
struct Joined {
  SourceTensor tensor;
  std::string file;
  bool has_experts = false;
  std::set<std::tuple<int64_t, int64_t, int64_t>> pieces;  // expert, first row, first column
};

// Adds one rank's share of a tensor. Ranks repeat norms, some biases and the heads of models with fewer KV heads than
// ranks; the first copy of a piece is taken.
void addShare(const RankTensor& share, const Mapping& mapping, int32_t rank, TensorView stored, Joined& joined) {
  const TensorSlice slice = storedSlice(share, sliceForRank(*share.row, mapping.tp_size, mapping.tpRank(rank)));
  const Extent whole = storedExtent(share);
  const int64_t experts = std::max<int64_t>(share.row->experts, 1);
  if (joined.tensor.shape().empty()) joined.tensor = SourceTensor(std::vector{experts, whole.rows, whole.cols});
  stored.shape = {experts, slice.rows, slice.cols};
  if (share.role == TensorRole::kIntegers) stored.dtype = DType::kInt8;
  for (int64_t expert = 0; expert < experts; ++expert) {
    int64_t local = expert * slice.rows;
    for (const RowRun& run : slice.runs) {
      if (run.begin >= 0 && joined.pieces.emplace(expert, run.begin, slice.col_begin).second) {
        joined.tensor.addRectangle(stored, {local, 0, run.rows, slice.cols}, expert * whole.rows + run.begin,
                                   slice.col_begin);
      }
      local += run.rows;
    }
  }
}

void joinRanks(const CheckpointReader& reader, const WeightTable& table, std::span<const std::string> ignored,
               SourceTensors& tensors) {
  const Mapping& mapping = reader.config().mapping;
  std::map<std::string, Joined> all;
  for (int32_t rank = 0; rank < mapping.worldSize(); ++rank) {
    const RankWeights weights = reader.rank(rank, table, ignored);
    tensors.keep(weights.file().keepAlive(), weights.file().fileBytes());
    for (const RankTensor& share : weights.tensors()) {
      Joined& joined = all[storedName(share, layerName(share.row->name, share.layer))];
      if (joined.file.empty()) joined.file = weights.file().source();
      joined.has_experts = share.row->experts > 0;
      addShare(share, mapping, rank, weights.get(share.name), joined);
    }
  }
  for (auto& [name, joined] : all) {
    joined.tensor.finish(name);
    tensors.add(name, joined.has_experts ? std::move(joined.tensor) : joined.tensor.part(0), joined.file);
  }
}

// Whether the output head is the embedding table. The tensors decide, not the config: some converters write the head
// as a copy of the table, and configs do not always have the field.
bool tiesHead(const SourceTensors& tensors) {
  const SourceTensor* head = tensors.find(kHeadTensor);
  const SourceTensor* embedding = tensors.find(kEmbeddingTensor);
  return head == nullptr || (embedding != nullptr && haveEqualValues(*head, *embedding));
}

// Every row comes from the joined tensor of its own name; a tied head comes from the embedding table.
void addSources(const ModelConfig& config, WeightTable& table) {
  for (WeightRow& row : table) {
    const bool from_embedding = row.name == kHeadTensor && config.tie_word_embeddings;
    row.sources = {{.name = from_embedding ? std::string(kEmbeddingTensor) : row.name,
                    .rows = row.shape[0],
                    .format = SourceFormat::kCheckpoint}};
  }
}

// The first part of a field's name, which is a key of the config: "moe" of "moe.num_experts".
std::string_view keyOf(std::string_view field) { return field.substr(0, field.find('.')); }

// Drops the known keys that change nothing in a model of this architecture, as other converters write them. What is
// left is what the conversion of the original model writes.
void dropUnusedKeys(const Architecture& architecture, Json& extra) {
  const auto isUsed = [&](std::string_view key) {
    // Experts are described by one key or by several, of which the architecture lists one.
    constexpr std::string_view kExperts = "moe";
    return std::ranges::any_of(architecture.fields, [&](const FieldValues& field) {
      return keyOf(field.field) == key || (key.starts_with(kExperts) && field.field.starts_with(kExperts));
    });
  };
  for (auto it = extra.begin(); it != extra.end();) {
    it = isConfigKey(it.key()) && !isUsed(it.key()) ? extra.erase(it) : std::next(it);
  }
}

SourceModel openCheckpoint(const fs::path& dir, const ConvertOptions& options) {
  const std::string where = (dir / "config.json").string();
  const auto reader = CheckpointReader::open(dir);
  SourceModel model = {.tensors = {}, .config = reader.config(), .table = {}, .format = SourceFormat::kCheckpoint};
  const Architecture& architecture = architectureOf(model.config, where);
  dropUnusedKeys(architecture, model.config.extra);
  model.quantised = model.config.quantization.quant_algo.has_value();
  if (model.quantised && options.quantise) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the weights are quantised already ({}); convert the unquantised model to quantise it in another way",
         where, *model.config.quantization.quant_algo);
  }
  joinRanks(reader, architecture.weightTable(model.config), architecture.ignored_sources, model.tensors);
  model.config.tie_word_embeddings = tiesHead(model.tensors);
  if (options.dtype) model.config.dtype = *options.dtype;
  checkQuantisation(model.config, where);
  applyOptions(options, model.config, where);
  model.table = architecture.weightTable(model.config);
  addSources(model.config, model.table);
  const WeightRow* head = findRow(model.table, slotOf(LinearId::kHead));
  if (model.quantised && model.config.tie_word_embeddings && head != nullptr &&
      isQuantised(weightQuantisation(model.config)->schemeOf(*head, kOutsideLayers, model.config.dtype).format.dtype)) {
    fail(ErrorCode::kUnsupported,
         "{}: exclude_modules does not list the output head, which these ranks must store; add \"*lm_head\"", where);
  }
  return model;
}
}  // namespace

SourceReader checkpointReader() {
  return {.kind = "TensorRT-LLM checkpoint",
          .recognises = isCheckpoint,
          .check = checkCheckpoint,
          .open = openCheckpoint,
          .files = checkpointFiles};
}

}  // namespace chorus
