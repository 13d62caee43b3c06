#include "runtime/adapter_cache/tensor_source.h"

#include "base/sha256.h"

namespace chorus {
namespace {

// What a request looks at may go when enqueue returns.
executor::Tensor ownTensor(const executor::Tensor& tensor) { return tensor.ownsData() ? tensor : tensor.copyToCpu(); }

void hashTensor(Sha256& hash, const executor::Tensor& tensor) {
  const executor::Shape shape = tensor.getShape();
  hash.update(std::as_bytes(std::span(shape.data(), shape.size())));
  const int type = static_cast<int>(tensor.getDataType());
  hash.update(std::as_bytes(std::span(&type, 1)));
  hash.update(std::span(static_cast<const std::byte*>(tensor.getData()), tensor.getSizeInBytes()));
}

}  // namespace

std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, int64_t element_bytes) {
  if (!lora.getWeights()) return nullptr;
  auto source = std::make_shared<AdapterSource>();
  source->weights = ownTensor(*lora.getWeights());
  source->config = ownTensor(*lora.getConfig());
  source->elements = static_cast<int64_t>(lora.getWeights()->getSize());
  source->bytes = source->elements * element_bytes;
  Sha256 hash;
  hashTensor(hash, *source->weights);
  hashTensor(hash, *source->config);
  source->content_hash = hash.hex();
  return source;
}

}  // namespace chorus
