#include "models/compose_adapters.h"

#include <gtest/gtest.h>

#include <functional>

namespace chorus {
namespace {

std::shared_ptr<const AdapterParts> adapterWith(const std::function<void(AdapterParts&)>& fill) {
  const auto parts = std::make_shared<AdapterParts>(2);
  fill(*parts);
  return parts;
}

// An adapter with a LoRA term of this scale on a linear of the second layer, on the output head and on the embedding.
std::shared_ptr<const AdapterParts> everywhere(float scale) {
  return adapterWith([&](AdapterParts& parts) {
    parts.add(1, LinearId::kDense, {.scale = scale});
    parts.add(kOutsideLayers, LinearId::kHead, {.scale = scale});
    AdapterEmbedding embedding;
    embedding.parts.push_back({.scale = scale});
    parts.addEmbedding(embedding);
  });
}

template <typename Part>
std::vector<float> scalesOf(const std::vector<Part>& parts) {
  std::vector<float> scales;
  for (const Part& part : parts) scales.push_back(part.scale);
  return scales;
}

TEST(ComposeAdapters, EveryPartHasItsScaleTimesItsTermsWeight) {
  const auto composed = composeParts(
      std::vector<WeightedParts>{{everywhere(2.0f), 0.5f}, {everywhere(3.0f), -4.0f}, {everywhere(2.0f), 0.0f}});
  const AdapterParts& parts = *composed;
  const std::vector<float> expected = {1.0f, -12.0f, 0.0f};
  EXPECT_EQ(scalesOf(parts.at(1, LinearId::kDense).parts), expected);
  EXPECT_EQ(scalesOf(parts.at(kOutsideLayers, LinearId::kHead).parts), expected);
  EXPECT_EQ(scalesOf(parts.embedding().parts), expected);
  EXPECT_TRUE(parts.at(0, LinearId::kDense).empty());
  EXPECT_TRUE(parts.at(1, LinearId::kQkv).empty());
  EXPECT_EQ(composed->bytes(), 0u);
}

TEST(ComposeAdapters, EveryExpertHasTheTermsOfAllMembersInTheirOrder) {
  constexpr int64_t kExperts = 3;
  const auto member = [](const std::vector<std::pair<int64_t, float>>& scales) {
    return adapterWith([&](AdapterParts& parts) {
      for (const auto& [expert, scale] : scales) {
        parts.addToExpert(1, LinearId::kFc, kExperts, expert, {.scale = scale});
      }
    });
  };
  const auto composed = composeParts(std::vector<WeightedParts>{
      {member({{2, 1.0f}, {0, 2.0f}}), 2.0f}, {everywhere(1.0f), 1.0f}, {member({{1, 5.0f}, {2, 3.0f}}), -1.0f}});
  const AdapterLinear& linear = composed->at(1, LinearId::kFc);
  EXPECT_EQ(scalesOf(linear.parts), (std::vector<float>{4.0f, -5.0f, 2.0f, -3.0f}));
  EXPECT_EQ(linear.expert_begin, (std::vector<int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(scalesOf(composed->at(1, LinearId::kDense).parts), std::vector<float>{1.0f});
}

TEST(ComposeAdapters, KeepsItsMembersPartsAlive) {
  auto member = everywhere(2.0f);
  const std::weak_ptr<const AdapterParts> parts = member;
  auto composed = composeParts(std::vector<WeightedParts>{{member, 0.5f}});
  member.reset();
  EXPECT_FALSE(parts.expired());
  composed.reset();
  EXPECT_TRUE(parts.expired());
}

TEST(ComposeAdapters, AdaptersThatAreNoSumOfLowRankTermsAreRefused) {
  const float value = 1;
  const int32_t token = 0;
  const PackedWeight weight(&value, DType::kFloat32, 1, 1);
  const auto refusalWith = [](const std::function<void(AdapterParts&)>& fill) {
    return std::string(compositionRefusal(*adapterWith(fill)));
  };
  const auto embeddingWith = [](const AdapterEmbedding& embedding) {
    return [=](AdapterParts& parts) { parts.addEmbedding(embedding); };
  };
  const std::string dora = "uses DoRA", saved = "has weights of its own (modules_to_save)",
                    bias = "has biases (bias or lora_bias)", rows = "has rows of its own (trainable_token_indices)";
  EXPECT_EQ(std::string(compositionRefusal(*everywhere(1.0f))), "");
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.add(1, LinearId::kProj, {.magnitude = &value}); }), dora);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.add(kOutsideLayers, LinearId::kHead, {.magnitude = &value}); }), dora);
  AdapterEmbedding embedding;
  embedding.parts.push_back({.magnitude = &value});
  EXPECT_EQ(refusalWith(embeddingWith(embedding)), dora);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.add(0, LinearId::kQkv, {.bias = &value}); }), bias);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.add(kOutsideLayers, LinearId::kHead, {.bias = &value}); }), bias);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.addWeight(1, LinearId::kFc, weight); }), saved);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.addWeight(kOutsideLayers, LinearId::kHead, weight); }), saved);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.addNorm(1, NormId::kMlpIn, {.weight = &value}); }), saved);
  EXPECT_EQ(refusalWith([&](AdapterParts& p) { p.addNorm(kOutsideLayers, NormId::kFinal, {.bias = &value}); }), saved);
  EXPECT_EQ(refusalWith(embeddingWith({.table = {.data = &value}})), saved);
  EXPECT_EQ(refusalWith(embeddingWith({.replaced_tokens = &token, .replaced_rows = &value, .replaced = 1})), rows);
}

}  // namespace
}  // namespace chorus
