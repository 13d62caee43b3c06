#include "lora/peft_files.h"

#include <algorithm>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "formats/safetensors.h"
#include "lora/peft_config.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights[] = {"adapter_model.safetensors", "adapter_model.bin"};

struct RawFiles {
  std::shared_ptr<const FileContents> config, weights;
  fs::path config_path, weights_path;
  std::vector<FileStamp> stamps;
};

RawFiles readRaw(size_t max_bytes, FileReader& files) {
  RawFiles raw;
  raw.config = files.read(kConfig, kMaxPeftConfigBytes);
  raw.config_path = files.directory().pathOf(kConfig);
  for (const char* name : kWeights) {
    if (!files.exists(name)) continue;
    raw.weights_path = files.directory().pathOf(name);
    raw.weights = files.read(name, max_bytes);
    raw.stamps = files.stamps();
    return raw;
  }
  fail(ErrorCode::kNotFound, "{}: neither adapter_model.safetensors nor adapter_model.bin is there",
       files.directory().path().string());
}

}  // namespace

size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank) {
  double elements = 0;
  for (const WeightRow& row : table) {
    // PEFT may save an embedding and its output head three times each, where a wrapper stands around them.
    const double copies = row.stage == Stage::kEveryLayer      ? config.num_hidden_layers
                          : row.role == WeightRole::kEmbedding ? 6
                                                               : 1;
    double size = 1;
    for (const int64_t extent : row.shape) size *= static_cast<double>(extent);
    elements += copies * size;
    if (row.shape.size() < 2) continue;
    const auto in = static_cast<double>(row.shape[1]), out = static_cast<double>(row.shape[0]);
    const double rank = max_rank > 0 ? static_cast<double>(max_rank) : std::max(in, out);
    // An adapter on each of the parts that a source keeps apart has an A of its own for it.
    elements += copies * rank * (in * static_cast<double>(std::max<size_t>(row.lora_targets.size(), 1)) + out);
  }
  constexpr double kHeader = 2.0 * Safetensors::kMaxHeaderBytes;
  const double bytes = elements * sizeof(double) + kHeader;
  return static_cast<size_t>(std::min(bytes, static_cast<double>(availableMemory())));
}

PeftFiles readPeftFiles(const OpenDirectory& open, size_t max_bytes) {
  const RawFiles raw = readUnchanged(open, [&](FileReader& files) { return readRaw(max_bytes, files); });
  return {std::string(raw.config->text()), raw.config_path.string(),
          parseTensorFile(raw.weights->bytes(), raw.weights_path, raw.weights), raw.stamps};
}

int64_t newestPeftChangeNs(const OpenDirectory& open) {
  FileReader files(open());
  files.exists(kConfig);
  for (const char* name : kWeights) files.exists(name);
  return files.newestChangeNs();
}

TensorFile openPeftWeights(const fs::path& dir) {
  const auto read = [&](FileReader& files) { return readRaw(availableMemory(), files); };
  const RawFiles raw = readUnchanged(openerOf(dir), read);
  return parseTensorFile(raw.weights->bytes(), raw.weights_path, raw.weights);
}

}  // namespace chorus
