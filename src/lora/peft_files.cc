#include "lora/peft_files.h"

#include <algorithm>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/sha256.h"
#include "formats/safetensors.h"
#include "lora/peft_config.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

struct RawFiles {
  std::shared_ptr<const FileContents> config, weights;
  fs::path config_path, weights_path;
  std::vector<FileStamp> stamps;
  size_t weights_bytes = 0;  // size of the whole file
};

// Most headers lie within the first kFirst bytes; a longer one takes a second read.
FileReader::Head readHeader(FileReader& files, const char* name, size_t max_bytes) {
  constexpr size_t kFirst = size_t{64} << 10;
  auto head = files.readHead(name, kFirst, max_bytes);
  if (head.contents->bytes().empty()) return head;
  const std::string source = files.directory().pathOf(name).string();
  const size_t needed = Safetensors::headerBytes(head.contents->bytes(), head.file_size, source);
  return needed <= kFirst ? head : files.readHead(name, needed, max_bytes);
}

RawFiles readRaw(size_t max_bytes, bool headers_only, FileReader& files) {
  RawFiles raw;
  raw.config = files.read(kPeftConfigFile, kMaxPeftConfigBytes);
  raw.config_path = files.directory().pathOf(kPeftConfigFile);
  for (const char* name : kPeftWeightFiles) {
    if (!files.exists(name)) continue;
    raw.weights_path = files.directory().pathOf(name);
    const bool has_header = raw.weights_path.extension() == ".safetensors";
    const auto head =
        headers_only && has_header ? readHeader(files, name, max_bytes) : files.readHead(name, max_bytes, max_bytes);
    raw.weights = head.contents;
    raw.weights_bytes = head.file_size;
    raw.stamps = files.stamps();
    return raw;
  }
  fail(ErrorCode::kNotFound, "{}: has neither adapter_model.safetensors nor adapter_model.bin",
       files.directory().path().string());
}

}  // namespace

size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank) {
  double elements = 0;
  for (const WeightRow& row : table) {
    // PEFT may save an embedding and its output head three times each when they are wrapped.
    const double copies = row.stage == Stage::kEveryLayer        ? config.num_hidden_layers
                          : row.slot == slotOf(TableId::kTokens) ? 6
                                                                 : 1;
    double size = 1;
    for (const int64_t extent : row.shape) size *= static_cast<double>(extent);
    elements += copies * size;
    if (row.shape.size() < 2) continue;
    const auto in = static_cast<double>(row.shape[1]), out = static_cast<double>(row.shape[0]);
    const double rank = max_rank > 0 ? static_cast<double>(max_rank) : std::max(in, out);
    // Each LoRA target of a fused row may have its own A.
    elements += copies * rank * (in * static_cast<double>(std::max<size_t>(row.lora_targets.size(), 1)) + out);
  }
  constexpr double kHeader = 2.0 * Safetensors::kMaxHeaderBytes;
  const double bytes = elements * sizeof(double) + kHeader;
  constexpr double kMost = 1e18;  // well within size_t
  return static_cast<size_t>(std::min(bytes, kMost));
}

PeftFiles readPeftFiles(const OpenDirectory& open, size_t max_bytes) {
  const RawFiles raw = readUnchanged(open, [&](FileReader& files) { return readRaw(max_bytes, false, files); });
  return {std::string(raw.config->text()), raw.config_path.string(),
          parseTensorFile(raw.weights->bytes(), raw.weights_path, raw.weights), raw.stamps};
}

bool PeftHeaders::headerOnly() const { return weights_path.extension() == ".safetensors" && weights_bytes > 0; }

std::string PeftHeaders::digest() const {
  const size_t header = Safetensors::headerBytes(weights->bytes(), weights_bytes, weights_path.string());
  Sha256 hash;
  hash.update(fmt::format("{} {} {} ", config.size(), header, weights_bytes));
  hash.update(config);
  hash.update(weights->bytes().first(std::min(header, weights->bytes().size())));
  return hash.hex();
}

PeftFiles PeftHeaders::parse() const {
  return {config, config_source,
          headerOnly() ? parseSafetensorsHeader(weights->bytes(), weights_bytes, weights_path)
                       : parseTensorFile(weights->bytes(), weights_path, weights),
          stamps};
}

PeftHeaders readPeftHeaders(const OpenDirectory& open, size_t max_bytes) {
  RawFiles raw = readUnchanged(open, [&](FileReader& files) { return readRaw(max_bytes, true, files); });
  return {std::string(raw.config->text()), raw.config_path.string(), std::move(raw.weights),
          std::move(raw.weights_path),     raw.weights_bytes,        std::move(raw.stamps)};
}

int64_t newestPeftChangeNs(const OpenDirectory& open) {
  FileReader files(open());
  files.exists(kPeftConfigFile);
  for (const char* name : kPeftWeightFiles) files.exists(name);
  return files.newestChangeNs();
}

TensorFile openPeftWeights(const fs::path& dir) {
  const auto read = [&](FileReader& files) { return readRaw(availableMemory(), false, files); };
  const RawFiles raw = readUnchanged(openerOf(dir), read);
  return parseTensorFile(raw.weights->bytes(), raw.weights_path, raw.weights);
}

}  // namespace chorus
