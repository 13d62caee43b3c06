#include "convert/sources/source_model.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/source_names.h"
#include "convert/tensor_copy.h"
#include "models/architecture.h"

namespace chorus {

bool haveEqualValues(const SourceTensor& a, const SourceTensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.rows() == 0) return true;  // its columns may be as many as a file says
  constexpr size_t kMaxBytes = size_t{1} << 20;
  const size_t size = dtypeSize(a.dtype());
  const int64_t cols = std::min(a.cols(), static_cast<int64_t>(kMaxBytes / size));
  const int64_t rows = std::min(a.rows(), std::max<int64_t>(static_cast<int64_t>(kMaxBytes / size) / cols, 1));
  std::vector<std::byte> from_a(static_cast<size_t>(rows * cols) * size), from_b(from_a.size());
  for (int64_t row = 0; row < a.rows(); row += rows) {
    for (int64_t col = 0; col < a.cols(); col += cols) {
      const Rectangle part = {row, col, std::min(rows, a.rows() - row), std::min(cols, a.cols() - col)};
      a.read(part, from_a.data());
      b.read(part, from_b.data());
      const size_t bytes = static_cast<size_t>(part.rows * part.cols) * size;
      if (std::memcmp(from_a.data(), from_b.data(), bytes) != 0) return false;
    }
  }
  return true;
}

void applyOptions(const ConvertOptions& options, ModelConfig& config, std::string_view where) {
  config.mapping = {options.tp_size, options.pp_size};
  config.use_parallel_embedding = options.use_parallel_embedding;
  config.embedding_sharding_dim = options.embedding_sharding_dim;
  config.finalize(where);
  architectureOf(config, where);
  if (const auto& quantise = options.quantise) {
    if (quantise->quantise_head && sharesEmbedding(config)) {
      fail(ErrorCode::kUnsupported,
           "--quantize_lm_head: the model's output head is its embedding table, which stays {}",
           dtypeName(config.dtype));
    }
    setQuantisation(config, quantise->bits, quantise->group_size, quantise->quantise_head);
  }
}

void checkSources(const SourceModel& model, std::span<const std::string> ignored, std::string_view where,
                  std::string_view config_name) {
  const SourceTensors& tensors = model.tensors;
  const SourceNames names(model.table, model.config.num_hidden_layers, model.format);
  std::vector<std::string> missing;  // the listed ones: a config can ask for far more tensors than there are
  names.forEach([&](const SourceNames::Tensor& expected, const std::string& name) {
    const SourceTensor* tensor = tensors.find(name);
    if (tensor == nullptr) {
      if (expected.is_new) missing.push_back(name);
      return missing.size() < kListedNames;
    }
    const std::vector<int64_t> shape = sourceShape(*expected.row, *expected.source);
    if (tensor->shape() != shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, {} asks for {}", tensors.fileOf(name), name,
           shapeText(tensor->shape()), config_name, shapeText(shape));
    }
    if (!isConvertible(tensor->dtype())) {
      fail(ErrorCode::kUnsupported, "{}: tensor '{}' is {}; only unquantised weights are converted",
           tensors.fileOf(name), name, dtypeName(tensor->dtype()));
    }
    return true;
  });
  std::vector<std::string> unexpected;
  int64_t found = 0;
  for (std::string& name : tensors.names()) {
    if (names.find(name)) {
      ++found;
    } else if (!matchesAny(ignored, name)) {
      unexpected.push_back(std::move(name));
    }
  }
  if (!missing.empty()) {
    const auto count = static_cast<size_t>(names.count() - found);
    fail(ErrorCode::kCorrupt, "{}: Required but not provided tensors: {}", where, listSome(missing, count));
  }
  if (!unexpected.empty()) {
    fail(ErrorCode::kCorrupt, "{}: tensors that {} does not have: {}; the weights and {} are of different models",
         where, model.config.architecture, listSome(unexpected), config_name);
  }
}

}  // namespace chorus
