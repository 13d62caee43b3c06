#include "runtime/adapter_cache/tensor_source.h"

#include <algorithm>
#include <span>

#include "base/sha256.h"
#include "engine/adapter_packer.h"

namespace chorus {
namespace {

using executor::Tensor;

// Copies tensors that do not own their bytes: the caller may free those once enqueue returns.
Tensor ownTensor(const Tensor& tensor) { return tensor.ownsData() ? tensor : tensor.copyToCpu(); }

void hashTensor(Sha256& hash, const Tensor& tensor) {
  const executor::Shape shape = tensor.getShape();
  hash.update(std::as_bytes(std::span(shape.data(), shape.size())));
  const int type = static_cast<int>(tensor.getDataType());
  hash.update(std::as_bytes(std::span(&type, 1)));
  hash.update(std::span(static_cast<const std::byte*>(tensor.getData()), tensor.getSizeInBytes()));
}

int64_t lastExtent(const Tensor& tensor) {
  const executor::Shape shape = tensor.getShape();
  return shape.empty() ? 0 : *(shape.end() - 1);
}

int64_t packedAtMost(const Tensor& weights, const Tensor& config, const PackedRowBytes& row_bytes) {
  const int64_t width = std::max<int64_t>(lastExtent(weights), 1), columns = lastExtent(config);
  const int64_t rows = static_cast<int64_t>(weights.getSize()) / width;
  const bool readable = config.getDataType() == executor::DataType::kINT32 && columns >= 3 &&
                        static_cast<int64_t>(config.getSize()) == rows * columns;
  const auto* keys = static_cast<const int32_t*>(config.getData());
  int64_t bytes = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t rank = readable ? keys[row * columns + 2] : 1;
    const bool dora = readable && columns > 3 && keys[row * columns + 3] != 0;
    bytes += row_bytes(std::clamp<int64_t>(rank, 1, width), width, dora);
  }
  return bytes;
}

}  // namespace

PackedRowBytes packedRowBytes(const WeightPacker& packer, const WeightFormat& format, int32_t tp_size) {
  return [&packer, format, tp_size](int64_t rank, int64_t width, bool dora) {
    // A takes bytes in proportion to `in`, plus at most the bytes of one input; B likewise for `out`.
    const int64_t features = (width + rank - 1) / rank;  // at least in + out
    int64_t bytes = std::max(packer.bytes(format, rank, features), packer.bytes(format, features, rank)) +
                    packer.bytes(format, rank, 1) + packer.bytes(format, 1, rank);
    if (dora) bytes += width / (rank + 1) * static_cast<int64_t>(sizeof(float));
    constexpr int64_t kPieces = 3;
    return tp_size * (bytes + kPieces * packedPiece(1));
  };
}

std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, const PackedRowBytes& row_bytes) {
  if (!lora.getWeights()) return nullptr;
  auto source = std::make_shared<AdapterSource>();
  source->weights = ownTensor(*lora.getWeights());
  source->config = ownTensor(*lora.getConfig());
  source->elements = static_cast<int64_t>(source->weights->getSize());
  source->bytes = packedAtMost(*source->weights, *source->config, row_bytes);
  Sha256 hash;
  hashTensor(hash, *source->weights);
  hashTensor(hash, *source->config);
  source->content_hash = hash.hex();
  return source;
}

}  // namespace chorus
