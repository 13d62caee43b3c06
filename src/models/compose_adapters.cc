#include "models/compose_adapters.h"

#include <algorithm>
#include <cassert>

#include "base/sha256.h"

namespace chorus {
namespace {

// What the adapter has in this linear that a sum of low-rank products cannot express, as the end of a sentence about
// the adapter; "" if there is nothing.
const char* foreignTo(const AdapterLinear& linear) {
  if (linear.weight.data != nullptr) return "has weights of its own (modules_to_save)";
  for (const LoraTerm& part : linear.parts) {
    if (part.magnitude != nullptr) return "uses DoRA";
    if (part.bias != nullptr) return "has biases (bias or lora_bias)";
  }
  return "";
}

const char* foreignTo(const AdapterEmbedding& embedding) {
  if (embedding.table.data != nullptr) return "has weights of its own (modules_to_save)";
  if (embedding.replaced > 0) return "has rows of its own (trainable_token_indices)";
  for (const EmbeddingPart& part : embedding.parts) {
    if (part.magnitude != nullptr) return "uses DoRA";
  }
  return "";
}

const char* foreignTo(const AdapterParts& parts) {
  const char* found = "";
  const auto look = [&](const char* foreign) {
    if (*found == '\0') found = foreign;
  };
  look(foreignTo(parts.embedding()));
  for (int32_t layer = kOutsideLayers; layer < parts.layers(); ++layer) {
    for (int i = 0; i < kNumLinears; ++i) look(foreignTo(parts.at(layer, static_cast<LinearId>(i))));
    for (int i = 0; i < kNumNorms; ++i) {
      if (!parts.norm(layer, static_cast<NormId>(i)).empty()) look("has weights of its own (modules_to_save)");
    }
  }
  return found;
}

template <typename Part>
Part weighted(Part part, float weight) {
  part.scale *= weight;
  return part;
}

// Adds the terms of one linear. The experts are the outer loop, because adding a term before those of later experts
// would move these.
void composeLinear(std::span<const WeightedAdapter> terms, size_t rank, int32_t layer, LinearId linear,
                   AdapterParts& composed) {
  int64_t experts = 0;
  for (const WeightedAdapter& term : terms) {
    const AdapterLinear& own = term.adapter->ranks[rank]->at(layer, linear);
    experts = std::max<int64_t>(experts, std::ssize(own.expert_begin) - 1);
    if (!own.expert_begin.empty()) continue;
    for (const LoraTerm& part : own.parts) composed.add(layer, linear, weighted(part, term.weight));
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const WeightedAdapter& term : terms) {
      const AdapterLinear& own = term.adapter->ranks[rank]->at(layer, linear);
      if (own.expert_begin.empty()) continue;
      for (const LoraTerm& part : own.experts().of(expert)) {
        composed.addToExpert(layer, linear, experts, expert, weighted(part, term.weight));
      }
    }
  }
}

std::shared_ptr<const AdapterParts> composeRank(std::span<const WeightedAdapter> terms, size_t rank) {
  const int32_t layers = terms.front().adapter->ranks[rank]->layers();
  auto composed = std::make_shared<AdapterParts>(layers);
  AdapterEmbedding embedding;
  for (int32_t layer = kOutsideLayers; layer < layers; ++layer) {
    for (int i = 0; i < kNumLinears; ++i) composeLinear(terms, rank, layer, static_cast<LinearId>(i), *composed);
  }
  for (const WeightedAdapter& term : terms) {
    const auto& parts = term.adapter->ranks[rank];
    for (const EmbeddingPart& part : parts->embedding().parts) embedding.parts.push_back(weighted(part, term.weight));
    composed->keep(parts);
  }
  if (!embedding.empty()) composed->addEmbedding(embedding);
  return composed;
}

}  // namespace

std::string compositionRefusal(const PreparedAdapter& adapter) {
  // Such adapters could be added, but PEFT refuses to, and a composition must give PEFT's result.
  if (adapter.adapts_parameters) return "adapts parameters by name (target_parameters)";
  for (const auto& rank : adapter.ranks) {
    if (const char* foreign = foreignTo(*rank); *foreign != '\0') return foreign;
  }
  return "";
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
  return composed;
}

}  // namespace chorus
