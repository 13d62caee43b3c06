#include "models/compose_adapters.h"

#include <algorithm>
#include <cassert>

#include "base/sha256.h"

namespace chorus {
namespace {

bool hasMagnitude(const AdapterParts& parts) {
  for (int32_t layer = 0; layer < parts.layers(); ++layer) {
    for (int linear = 0; linear < kNumLinears; ++linear) {
      const auto of_linear = parts.at(layer, static_cast<LinearId>(linear));
      if (std::any_of(of_linear.begin(), of_linear.end(), [](const LinearPart& p) { return p.magnitude != nullptr; }))
        return true;
    }
  }
  return false;
}

std::shared_ptr<const AdapterParts> composeRank(std::span<const WeightedAdapter> terms, size_t rank) {
  const int32_t layers = terms.front().adapter->ranks[rank]->layers();
  auto parts = std::make_shared<AdapterParts>(layers);
  for (const WeightedAdapter& term : terms) {
    for (int32_t layer = 0; layer < layers; ++layer) {
      for (int i = 0; i < kNumLinears; ++i) {
        const auto linear = static_cast<LinearId>(i);
        for (LinearPart part : term.adapter->ranks[rank]->at(layer, linear)) {
          part.scale *= term.weight;
          parts->add(layer, linear, part);
        }
      }
    }
  }
  return parts;
}

}  // namespace

std::string compositionRefusal(const PreparedAdapter& adapter) {
  const auto dora = [](const auto& rank) { return hasMagnitude(*rank); };
  return std::any_of(adapter.ranks.begin(), adapter.ranks.end(), dora) ? "uses DoRA" : "";
}

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

std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) {
  assert(!terms.empty());
  auto composed = std::make_shared<PreparedAdapter>();
  composed->content_hash = composedHash(terms);
  for (size_t rank = 0; rank < terms.front().adapter->ranks.size(); ++rank)
    composed->ranks.push_back(composeRank(terms, rank));
  for (const WeightedAdapter& term : terms) composed->members.push_back(term.adapter);
  return composed;
}

}  // namespace chorus
