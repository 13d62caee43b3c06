#include "models/prepared_adapter.h"

#include "base/sha256.h"

namespace chorus {

std::string composedHash(std::span<const WeightedAdapter> terms) {
  Sha256 hash;
  for (const WeightedAdapter& term : terms) {
    const auto& content = term.adapter->content_hash;
    const uint64_t length = content.size();
    hash.update(std::as_bytes(std::span(&length, 1)));
    hash.update(std::as_bytes(std::span(content)));
    hash.update(std::as_bytes(std::span(&term.weight, 1)));
  }
  return "composition:" + hash.hex();
}

}  // namespace chorus
