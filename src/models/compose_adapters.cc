#include "models/compose_adapters.h"

#include <algorithm>
#include <cassert>

namespace chorus {
namespace {

// Returns why a sum of low-rank products cannot express what the adapter does to this linear, as the end of a sentence
// about the adapter; "" if it can.
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

}  // namespace

const char* compositionRefusal(const AdapterParts& parts) {
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

namespace {

template <typename Part>
Part weighted(Part part, float weight) {
  part.scale *= weight;
  return part;
}

// Adds the terms of one linear. The experts are the outer loop, because adding a term before those of later experts
// would move these.
void composeLinear(std::span<const WeightedParts> terms, int32_t layer, LinearId linear, AdapterParts& composed) {
  int64_t experts = 0;
  for (const WeightedParts& term : terms) {
    const AdapterLinear& own = term.parts->at(layer, linear);
    experts = std::max<int64_t>(experts, std::ssize(own.expert_begin) - 1);
    if (!own.expert_begin.empty()) continue;
    for (const LoraTerm& part : own.parts) composed.add(layer, linear, weighted(part, term.weight));
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const WeightedParts& term : terms) {
      const AdapterLinear& own = term.parts->at(layer, linear);
      if (own.expert_begin.empty()) continue;
      for (const LoraTerm& part : own.experts().of(expert)) {
        composed.addToExpert(layer, linear, experts, expert, weighted(part, term.weight));
      }
    }
  }
}

}  // namespace

std::shared_ptr<const AdapterParts> composeParts(std::span<const WeightedParts> terms) {
  assert(!terms.empty());
  const int32_t layers = terms.front().parts->layers();
  auto composed = std::make_shared<AdapterParts>(layers);
  AdapterEmbedding embedding;
  for (int32_t layer = kOutsideLayers; layer < layers; ++layer) {
    for (int i = 0; i < kNumLinears; ++i) composeLinear(terms, layer, static_cast<LinearId>(i), *composed);
  }
  for (const WeightedParts& term : terms) {
    for (const EmbeddingPart& part : term.parts->embedding().parts) {
      embedding.parts.push_back(weighted(part, term.weight));
    }
    composed->keep(term.parts);
  }
  if (!embedding.empty()) composed->addEmbedding(embedding);
  return composed;
}

}  // namespace chorus
