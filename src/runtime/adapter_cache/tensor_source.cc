#include "runtime/adapter_cache/tensor_source.h"

#include <algorithm>
#include <span>

#include "base/sha256.h"
#include "kernels/tensor.h"

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

// Upper bound of the packed bytes of one row of the weights tensor, which holds rank x in + out x rank elements, and
// out more with DoRA. Packed, A is in panels of 16 ranks, B in panels of 16 outputs and pairs of ranks, a DoRA
// magnitude takes 4 bytes, and every piece starts at a cache line.
int64_t packedRowAtMost(int64_t width, int64_t rank, bool dora, int64_t element_bytes) {
  rank = std::clamp<int64_t>(rank, 1, std::max<int64_t>(width, 1));
  const int64_t panels = (rank + kPanelCols - 1) / kPanelCols * kPanelCols;
  const int64_t stretched = (width * panels + rank - 1) / rank;
  const int64_t magnitudes = dora ? width / (rank + 1) : 0;
  constexpr int64_t kCacheLines = 3 * 64;
  return (stretched + magnitudes + kPanelCols * (rank + 1) + panels + kCacheLines) * element_bytes;
}

int64_t packedAtMost(const Tensor& weights, const Tensor& config, int64_t element_bytes) {
  const int64_t width = std::max<int64_t>(lastExtent(weights), 1), columns = lastExtent(config);
  const int64_t rows = static_cast<int64_t>(weights.getSize()) / width;
  const bool readable = config.getDataType() == executor::DataType::kINT32 && columns >= 3 &&
                        static_cast<int64_t>(config.getSize()) == rows * columns;
  const auto* keys = static_cast<const int32_t*>(config.getData());
  int64_t bytes = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t rank = readable ? keys[row * columns + 2] : 1;
    bytes += packedRowAtMost(width, rank, readable && columns > 3 && keys[row * columns + 3] != 0, element_bytes);
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, int64_t element_bytes) {
  if (!lora.getWeights()) return nullptr;
  auto source = std::make_shared<AdapterSource>();
  source->weights = ownTensor(*lora.getWeights());
  source->config = ownTensor(*lora.getConfig());
  source->elements = static_cast<int64_t>(source->weights->getSize());
  source->bytes = packedAtMost(*source->weights, *source->config, element_bytes);
  Sha256 hash;
  hashTensor(hash, *source->weights);
  hashTensor(hash, *source->config);
  source->content_hash = hash.hex();
  return source;
}

}  // namespace chorus
