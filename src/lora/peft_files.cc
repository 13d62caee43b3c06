#include "lora/peft_files.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/sha256.h"
#include "formats/safetensors.h"
#include "formats/torch_contents.h"
#include "formats/torch_file.h"
#include "lora/adapter_builder.h"
#include "lora/peft_config.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMlxWeightsFile = "adapters.safetensors";
constexpr const char* kWeightFiles[] = {"adapter_model.safetensors", "adapter_model.bin", kMlxWeightsFile,
                                        "adapter_model.pt"};

// The configuration and the place of the weights.
struct FoundFiles {
  std::shared_ptr<const FileContents> config;
  fs::path config_path, weights_path;
};

FoundFiles find(FileReader& files) {
  FoundFiles found;
  found.config = files.read(kPeftConfigFile, kMaxPeftConfigBytes);
  found.config_path = files.directory().pathOf(kPeftConfigFile);
  const std::string weights = adapterWeightsFile(files.directory());
  if (weights.empty()) {
    fail(ErrorCode::kNotFound,
         "{}: has neither adapter_model.safetensors nor adapter_model.bin, nor another tool's weights "
         "(adapters.safetensors, adapter_model.pt, adapter_N.pt)",
         files.directory().path().string());
  }
  // A file that would be read instead and appears meanwhile is a change of the directory.
  for (const char* name : kWeightFiles) {
    files.exists(name);
    if (name == weights) break;
  }
  found.weights_path = files.directory().pathOf(weights);
  return found;
}

// Most headers lie within the first kFirst bytes; a longer one takes a second read.
FileReader::Head readSafetensorsHeader(FileReader& files, const fs::path& path, size_t max_bytes) {
  constexpr size_t kFirst = size_t{64} << 10;
  auto head = files.readHead(path.filename(), kFirst, max_bytes);
  if (head.contents->bytes().empty()) fail(ErrorCode::kCorrupt, "{}: the file is empty", path.string());
  const size_t needed = Safetensors::headerBytes(head.contents->bytes(), head.file_size, path.string());
  return needed <= kFirst ? head : files.readHead(path.filename(), needed, max_bytes);
}

void readTorchHeader(FileReader& files, size_t max_bytes, PeftHeaders& headers) {
  constexpr size_t kFirst = 512;  // enough to see what the file is
  const fs::path& path = headers.weights_path;
  const auto head = files.readHead(path.filename(), kFirst, max_bytes);
  headers.weights_bytes = head.file_size;
  // Names other formats in its error.
  if (!isTorchArchive(head.contents->bytes()) && !isTorchPickle(head.contents->bytes())) {
    parseTensorFile(head.contents->bytes(), path, nullptr);
  }
  const auto parse = [&](const PartialBytes& bytes) { return parseTorchHeader(bytes, path); };
  headers.parsed = files.readParts(path.filename(), max_bytes, Safetensors::kMaxHeaderBytes, parse);
}

// Numbers of values of the largest adapter: of whole weights, and of A and B.
struct Elements {
  double whole = 0, low_rank = 0;
};

Elements largestAdapter(const ModelConfig& config, const WeightTable& table, int64_t max_rank) {
  Elements elements;
  for (const WeightRow& row : table) {
    // PEFT may save an embedding and its output head three times each when they are wrapped.
    const double copies = row.stage == Stage::kEveryLayer        ? config.num_hidden_layers
                          : row.slot == slotOf(TableId::kTokens) ? 6
                                                                 : 1;
    double size = 1;
    for (const int64_t extent : row.shape) size *= static_cast<double>(extent);
    const auto experts = static_cast<double>(std::max<int64_t>(row.experts, 1));
    elements.whole += copies * experts * size;
    if (row.shape.size() < 2) continue;
    const auto in = static_cast<double>(row.shape[1]), out = static_cast<double>(row.shape[0]);
    const double rank = max_rank > 0 ? static_cast<double>(max_rank) : std::max(in, out);
    // Each LoRA target of a fused row may have its own A.
    elements.low_rank +=
        copies * experts * rank * (in * static_cast<double>(std::max<size_t>(row.lora_targets.size(), 1)) + out);
  }
  return elements;
}

// Bytes of a file of these values in float64.
size_t fileBytes(double elements) {
  constexpr double kHeader = 2.0 * Safetensors::kMaxHeaderBytes;
  const double bytes = elements * sizeof(double) + kHeader;
  constexpr double kMost = 1e18;  // well within size_t
  return static_cast<size_t>(std::min(bytes, kMost));
}

}  // namespace

std::string highestNumbered(std::span<const std::string> names, std::string_view prefix, std::string_view suffix) {
  std::string found;
  int64_t highest = -1;
  for (const std::string& name : names) {
    std::string_view rest = name;
    if (!rest.starts_with(prefix) || !rest.ends_with(suffix) || rest.size() <= prefix.size() + suffix.size()) continue;
    rest = rest.substr(prefix.size(), rest.size() - prefix.size() - suffix.size());
    int64_t number = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || end != rest.data() + rest.size() || number <= highest) continue;
    highest = number;
    found = name;
  }
  return found;
}

std::string adapterWeightsFile(const Directory& directory) {
  for (const char* name : kWeightFiles) {
    if (directory.hasName(name)) return name;
  }
  constexpr size_t kMostEntries = 4096;
  return highestNumbered(directory.names(kMostEntries).names, "adapter_", ".pt");
}

size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank) {
  const Elements most = largestAdapter(config, table, max_rank);
  return fileBytes(most.whole + most.low_rank);
}

size_t largestLowRankWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank) {
  return fileBytes(largestAdapter(config, table, max_rank).low_rank);
}

PeftFiles readPeftFiles(FileReader& files, size_t max_bytes) {
  // The header is read first. It refuses a PyTorch archive that has far more bytes than its tensors before all of it is
  // read, and shows how much memory the tensors need.
  PeftHeaders headers = readPeftHeaders(files, max_bytes);
  const size_t copied = files.reserves() ? headers.copiedBytes() : 0;
  headers.header.reset();  // its reservation ends before the next one (FileMemory::reserve)
  const auto weights = files.read(headers.weights_path.filename(), headers.weights_bytes, copied);
  return {headers.config, headers.config_source, parseTensorFile(weights->bytes(), headers.weights_path, weights)};
}

PeftHeaders readPeftHeaders(FileReader& files, size_t max_bytes) {
  FoundFiles found = find(files);
  PeftHeaders headers;
  headers.config = found.config->text();
  headers.config_source = found.config_path.string();
  headers.weights_path = std::move(found.weights_path);
  if (headers.weights_path.extension() == ".safetensors") {
    const auto head = readSafetensorsHeader(files, headers.weights_path, max_bytes);
    headers.header = head.contents;
    headers.weights_bytes = head.file_size;
  } else {
    readTorchHeader(files, max_bytes, headers);
  }
  return headers;
}

std::string PeftHeaders::digest(BackgroundThrottle* throttle) const {
  if (header == nullptr) return {};
  const size_t size = Safetensors::headerBytes(header->bytes(), weights_bytes, weights_path.string());
  Sha256 hash(throttle);
  hash.update(fmt::format("{} {} {} ", config.size(), size, weights_bytes));
  hash.update(config);
  hash.update(header->bytes().first(std::min(size, header->bytes().size())));
  return hash.hex();
}

uint64_t PeftHeaders::copiedBytes() const {
  const TensorFile tensors = parse().weights;
  uint64_t bytes = chorus::copiedBytes(tensors);
  const bool transposes = weights_path.filename() == kMlxWeightsFile;
  for (const std::string& name : tensors.names()) {
    // Whole weights may be gathered, transposed or unpacked before they are used.
    if (!transposes && name.find("lora_") != std::string::npos) continue;
    bytes = checkedAdd(bytes, tensors.find(name)->bytes.size(), "the tensors");
  }
  return bytes;
}

PeftFiles PeftHeaders::parse() const {
  return {config, config_source,
          parsed ? *parsed : parseSafetensorsHeader(header->bytes(), weights_bytes, weights_path)};
}

TensorFile openPeftWeights(const fs::path& dir) {
  return readUnchanged(openerOf(dir), [](FileReader& files) { return readPeftFiles(files, availableMemory()); })
      .weights;
}

}  // namespace chorus
